package retention_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/mongostream/streamer/retention"
	"github.com/mongostream/streamer/retention/retentiontest"
)

func openFiles(t *testing.T, root string) *retention.Files {
	t.Helper()
	s := retention.NewFiles(root)
	t.Cleanup(func() { _ = s.Close() })
	if _, _, err := s.List(t.Context(), "v1", ""); err != nil { // the first use opens it
		t.Fatal(err)
	}
	return s
}

func TestFilesAreAStore(t *testing.T) {
	retentiontest.TestStore(t, func(t *testing.T) retention.Store { return openFiles(t, t.TempDir()) })
}

func TestMemoryIsAStore(t *testing.T) {
	retentiontest.TestStore(t, func(*testing.T) retention.Store { return &retentiontest.Memory{} })
}

// What an interrupted write has left is removed, unless another process may be writing it.
func TestTemporaryFilesAreRemoved(t *testing.T) {
	root := t.TempDir()
	first := openFiles(t, root)
	if err := first.Put(t.Context(), "v1/seg/1", nil); err != nil {
		t.Fatal(err)
	}
	left := filepath.Join(root, "v1", "seg", "x.tmp")
	if err := os.WriteFile(left, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	second := openFiles(t, root)
	if _, err := os.Stat(left); err != nil {
		t.Errorf("removed while another process has the folder: %v", err)
	}
	if listed, _, err := second.List(t.Context(), "v1/seg", ""); err != nil || len(listed) != 1 {
		t.Errorf("listed %v, %v", listed, err)
	}
	_, _ = first.Close(), second.Close()
	openFiles(t, root)
	if _, err := os.Stat(left); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("not removed: %v", err)
	}
}

// A folder may have files of others: they stay, and one that cannot be read, such as lost+found,
// keeps no node from its start.
func TestFilesOfOthersStay(t *testing.T) {
	root := t.TempDir()
	theirs := filepath.Join(root, "database", "x.tmp")
	for _, folder := range []string{"database", "v1", "lost+found", "v1/closed"} {
		if err := os.Mkdir(filepath.Join(root, folder), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{theirs, filepath.Join(root, "now1.tmp")} {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, folder := range []string{"lost+found", "v1/closed"} {
		if err := os.Chmod(filepath.Join(root, folder), 0); err != nil {
			t.Fatal(err)
		}
	}
	openFiles(t, root)
	if _, err := os.Stat(theirs); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(root, "now1.tmp")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("not removed: %v", err)
	}
}

// A file system that hangs holds up nobody whose context ends.
func TestHangingFileSystemHoldsUpNobody(t *testing.T) {
	root := t.TempDir()
	s := openFiles(t, root)
	pipe := filepath.Join(root, "pipe") // opening it hangs until somebody writes
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, _, err := s.Get(ctx, "pipe", 0, 10); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
	letEnd(t, pipe)
}

// letEnd lets calls end that hang in a pipe, also those that open it later: it has a writer until
// the process ends.
func letEnd(t *testing.T, pipe string) {
	t.Helper()
	if _, err := syscall.Open(pipe, os.O_RDWR|syscall.O_CLOEXEC, 0); err != nil {
		t.Fatal(err)
	}
}

// Where many reads hang, writes continue, and the other way round: each has places of its own.
func TestHangingReadsHoldUpNoWrites(t *testing.T) {
	root := t.TempDir()
	s := openFiles(t, root)
	pipe := filepath.Join(root, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	var hung sync.WaitGroup
	for range 100 {
		hung.Go(func() { _, _, _ = s.Get(ctx, "pipe", 0, 10) })
	}
	hung.Wait()
	if err := s.Put(t.Context(), "a/seg/1", []byte("x")); err != nil {
		t.Error(err)
	}
	letEnd(t, pipe)
	if _, _, err := s.Get(t.Context(), "a/seg/1", 0, 1); err != nil {
		t.Error(err)
	}
}

// The store has documents: nobody else may read them.
func TestFilesAreTheOwnersAlone(t *testing.T) {
	root := filepath.Join(t.TempDir(), "log")
	s := openFiles(t, root)
	if err := s.Put(t.Context(), "a/seg/1", []byte("x")); err != nil {
		t.Fatal(err)
	}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %o", path, info.Mode().Perm())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"../x", "/x", "a/../../x", "", ".", "x.tmp", "a//b", strings.Repeat("../", 9) + "etc/passwd"} {
		if err := s.Put(t.Context(), key, nil); err == nil {
			t.Errorf("key %q is accepted", key)
		}
	}
}

// A folder that cannot be opened is opened once it can be.
func TestFolderIsOpenedOnceItCanBe(t *testing.T) {
	there := filepath.Join(t.TempDir(), "there")
	if err := os.WriteFile(there, nil, 0o600); err != nil { // where the folder is to be
		t.Fatal(err)
	}
	s := retention.NewFiles(filepath.Join(there, "log"))
	if err := s.Put(t.Context(), "a/seg/1", []byte("x")); err == nil {
		t.Error("put into a folder that cannot be")
	}
	if _, _, err := s.List(t.Context(), "a/seg", ""); err == nil {
		t.Error("listed a folder that cannot be")
	}
	if err := errors.Join(os.Remove(there), os.Mkdir(there, 0o700)); err != nil {
		t.Fatal(err)
	}
	if err := s.Put(t.Context(), "a/seg/1", []byte("x")); err != nil {
		t.Error(err)
	}
	if got, _, err := s.Get(t.Context(), "a/seg/1", 0, 9); err != nil || string(got) != "x" {
		t.Errorf("%q, %v", got, err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := s.Put(t.Context(), "a/seg/2", nil); err == nil {
		t.Error("put after it was closed")
	}
}

// Where the volume of the folder is not mounted, nothing is made on the disk below.
func TestFoldersAboveTheStoreAreNotMade(t *testing.T) {
	volume := filepath.Join(t.TempDir(), "volume")
	s := retention.NewFiles(filepath.Join(volume, "log"))
	t.Cleanup(func() { _ = s.Close() })
	put := func(key string) error {
		err := s.Put(t.Context(), key, []byte("x"))
		if _, there := os.Stat(volume); err != nil && there == nil {
			t.Errorf("%s: %v, and the volume was made", key, err)
		}
		return err
	}
	if put("v1/a/1/seg/1") == nil {
		t.Error("put where no volume is")
	}
	if err := os.Mkdir(volume, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := put("v1/a/1/seg/1"); err != nil {
		t.Error(err)
	}
	if err := os.RemoveAll(volume); err != nil {
		t.Fatal(err)
	}
	if put("v1/a/1/seg/2") == nil {
		t.Error("put after the volume has gone")
	}
}

// Chains are found in a folder of any name, beside files of others. What cannot be read is an
// error: it could be a chain.
func TestChainsAreFoundOrTheErrorIsTold(t *testing.T) {
	root := filepath.Join(t.TempDir(), "log [1]*?")
	writer := openFiles(t, root)
	if err := writer.Put(t.Context(), "v1/a/1/seg/1", nil); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(root, "v1", "a", "empty"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"v1/file", "v1/a/file"} {
		if err := os.WriteFile(filepath.Join(root, file), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	reader, err := retention.ReadFiles(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []*retention.Files{writer, reader} {
		if chains, err := s.Chains(t.Context()); err != nil || len(chains) != 1 || chains[0] != "v1/a/1" {
			t.Errorf("%q, %v", chains, err)
		}
	}
	for _, broken := range []string{"v1/b", "v1/a/2"} { // links to themselves, which nobody can read
		path := filepath.Join(root, broken)
		if err := os.Symlink(path, path); err != nil {
			t.Fatal(err)
		}
		if chains, err := reader.Chains(t.Context()); !errors.Is(err, syscall.ELOOP) {
			t.Errorf("%s: %q, %v", broken, chains, err)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	other, err := retention.ReadFiles(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if chains, err := other.Chains(t.Context()); err != nil || len(chains) != 0 {
		t.Errorf("a folder without a log: %q, %v", chains, err)
	}
}
