package retention

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A Files is a store in a folder of a file system, which several processes may share. The names of
// its files end in nothing that the keys do not have; temporary files end in `.tmp`.
type Files struct {
	root string
	kept bool // only read, and not locked

	mu     sync.Mutex // held while the folder is opened
	lock   *os.File   // nil until then
	closed bool

	// reads and writes hold one value for each call under way, which may hang: if only writes do,
	// readers continue.
	reads, writes chan struct{}
}

// maxCalls is how many calls of a kind may be under way. Each takes a thread.
const maxCalls = 32

// within opens the folder, if that has to be, calls the file system, and returns when the context
// ends, although the call may still be under way then.
func within[T any](ctx context.Context, s *Files, busy chan struct{}, call func() (T, error)) (result T, err error) {
	if err := context.Cause(ctx); err != nil {
		return result, err
	}
	select {
	case busy <- struct{}{}:
	case <-ctx.Done():
		return result, context.Cause(ctx)
	}
	type answer struct {
		result T
		err    error
	}
	answers := make(chan answer, 1)
	go func() {
		defer func() { <-busy }()
		var result T
		err := s.open()
		if err == nil {
			result, err = call()
		}
		answers <- answer{result, err}
	}()
	select {
	case a := <-answers:
		return a.result, a.err
	case <-ctx.Done():
		return result, context.Cause(ctx)
	}
}

var _ Store = (*Files)(nil)

const (
	folderMode = 0o700
	fileMode   = 0o600
	temporary  = ".tmp"
	lockName   = ".lock"
	clockName  = "now" // of the files that show the time
)

// filesPage is how many objects a listing returns.
const filesPage = 100_000

// NewFiles returns a store in a folder, which is opened when it is first used, and by the next use
// if that fails. Close closes it.
func NewFiles(root string) *Files {
	return &Files{root: root, reads: make(chan struct{}, maxCalls), writes: make(chan struct{}, maxCalls)}
}

// open creates the folder if necessary. If no other process has it open, it removes what
// interrupted writes have left.
func (s *Files) open() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return errors.New("open folder: it was closed")
	case s.lock != nil || s.kept:
		return nil
	}
	if err := s.makeRoot(); err != nil {
		return err
	}
	lock, err := os.OpenFile(filepath.Join(s.root, lockName), os.O_CREATE|os.O_RDWR, fileMode)
	if err != nil {
		return fmt.Errorf("open lock: %w", err)
	}
	if flock(lock, syscall.LOCK_EX|syscall.LOCK_NB) == nil { // nobody else is writing
		s.removeTemporary()
	}
	if err := flock(lock, syscall.LOCK_SH|syscall.LOCK_NB); err != nil && !errors.Is(err, syscall.EWOULDBLOCK) {
		return errors.Join(fmt.Errorf("lock folder: %w", err), lock.Close())
	}
	s.lock = lock
	return nil
}

// makeRoot creates the folder if it is missing, but none above it: where a volume is not mounted,
// they would be made on the disk below.
func (s *Files) makeRoot() error {
	if _, err := os.Stat(s.root); !errors.Is(err, fs.ErrNotExist) {
		return nil // whether it can be used, its use shows
	}
	err := os.Mkdir(s.root, folderMode)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("create folder: %w: the folder above must exist; is the volume mounted?", err)
	case err != nil && !errors.Is(err, fs.ErrExist):
		return fmt.Errorf("create folder: %w", err)
	}
	return nil
}

// ReadFiles opens the store in a folder that exists, for reading: it changes nothing, and needs no
// right to write.
func ReadFiles(root string) (*Files, error) {
	if info, err := os.Stat(root); err != nil {
		return nil, fmt.Errorf("open folder: %w", err)
	} else if !info.IsDir() {
		return nil, fmt.Errorf("open folder: %s is none", root)
	}
	s := NewFiles(root)
	s.kept = true
	return s, nil
}

// CheckFolder returns why this user could not keep a store in a folder, nil if he could; found says
// whether the folder is there, otherwise its first use would make it. It changes nothing.
func CheckFolder(ctx context.Context, root string) (found bool, err error) {
	s := NewFiles(root)
	s.kept = true
	return within(ctx, s, s.reads, s.check)
}

func (s *Files) check() (found bool, err error) {
	const writable = 0x2 | 0x1 // W_OK and X_OK of access(2)
	switch info, err := os.Stat(s.root); {
	case errors.Is(err, fs.ErrNotExist):
		above := filepath.Dir(s.root)
		if err := syscall.Access(above, writable); err != nil {
			return false, fmt.Errorf("create folder %s: write into the one above: %w", s.root, err)
		}
		return false, nil
	case err != nil:
		return false, fmt.Errorf("open folder: %w", err)
	case !info.IsDir():
		return false, fmt.Errorf("open folder: %s is none", s.root)
	}
	folders := []string{""}
	chains, err := s.chains()
	for _, chain := range chains {
		folders = append(folders, chain, chain+"/seg", chain+"/floor")
	}
	for _, folder := range folders {
		path := filepath.Join(s.root, filepath.FromSlash(folder))
		if failed := syscall.Access(path, writable); failed != nil && !errors.Is(failed, fs.ErrNotExist) { // a floor comes later
			err = errors.Join(err, fmt.Errorf("write into %s: %w", path, failed))
		}
	}
	return true, err
}

// FolderOf returns the folder that a URL names: file:// and an absolute path.
func FolderOf(text string) (string, error) {
	u, err := url.Parse(text)
	isLocal := err == nil && u.Scheme == "file" && u.Host == ""
	if !isLocal || !filepath.IsAbs(u.Path) {
		return "", fmt.Errorf("%q is not the URL of a folder", text)
	}
	return u.Path, nil
}

// Close ends the use of the folder. It does not wait for one that hangs while it is opened.
func (s *Files) Close() error {
	if !s.mu.TryLock() {
		return nil
	}
	defer s.mu.Unlock()
	s.closed = true
	if s.lock == nil {
		return nil
	}
	return s.lock.Close()
}

// Chains returns the folders of the chains in the store, for ChainAt.
func (s *Files) Chains(ctx context.Context) ([]string, error) {
	return within(ctx, s, s.reads, s.chains)
}

func (s *Files) chains() (chains []string, err error) {
	sources, err := s.namesIn("v1")
	if err != nil {
		return nil, err
	}
	for _, source := range sources {
		incarnations, err := s.namesIn("v1", source)
		if err != nil {
			return nil, err
		}
		for _, incarnation := range incarnations {
			segments := filepath.Join(s.root, "v1", source, incarnation, "seg")
			if _, err := os.Stat(segments); err == nil {
				chains = append(chains, filepath.ToSlash(filepath.Join("v1", source, incarnation)))
			} else if !isNoFolder(err) {
				return nil, fmt.Errorf("look for chains: %w", err)
			}
		}
	}
	return chains, nil
}

// namesIn returns the names in a folder of the store, sorted; none if it is missing or no folder.
func (s *Files) namesIn(folder ...string) (names []string, err error) {
	entries, err := os.ReadDir(filepath.Join(s.root, filepath.Join(folder...)))
	if err != nil && !isNoFolder(err) {
		return nil, fmt.Errorf("look for chains: %w", err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, nil
}

// isNoFolder reports whether an error says that a folder is missing, or is a file.
func isNoFolder(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

func flock(f *os.File, how int) error { return syscall.Flock(int(f.Fd()), how) }

// removeTemporary removes the temporary files that are certainly ours, as far as it can: the folder
// may have files of others, and those that stay cost only space.
func (s *Files) removeTemporary() {
	ours, _ := filepath.Glob(filepath.Join(s.root, clockName+"*"+temporary)) // its pattern is valid
	for _, path := range ours {
		_ = os.Remove(path)
	}
	_ = filepath.WalkDir(filepath.Join(s.root, "v1"), func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil && d != nil && d.IsDir():
			return fs.SkipDir
		case err == nil && !d.IsDir() && strings.HasSuffix(path, temporary):
			_ = os.Remove(path) //nolint:gosec // whoever may put links into the folder may remove its files
		}
		return nil
	})
}

// path returns the file of a key.
func (s *Files) path(key string) (string, error) {
	if !fs.ValidPath(key) || key == "." || strings.HasSuffix(key, temporary) {
		return "", fmt.Errorf("invalid key %q", key)
	}
	return filepath.Join(s.root, filepath.FromSlash(key)), nil
}

// Put implements Store. The object is complete and on disk before it has its name.
func (s *Files) Put(ctx context.Context, key string, data []byte) error {
	_, err := within(ctx, s, s.writes, func() (struct{}, error) { return struct{}{}, s.put(key, data) })
	return err
}

func (s *Files) put(key string, data []byte) error {
	path, err := s.path(key)
	if err != nil {
		return err
	}
	folder := filepath.Dir(path)
	if err := s.makeFolder(folder); err != nil {
		return err
	}
	temp, err := writeTemporary(folder, data, time.Time{})
	defer os.Remove(temp) //nolint:errcheck // the next start removes it
	if err != nil {
		return err // it names the file
	}
	if err := os.Link(temp, path); errors.Is(err, fs.ErrExist) {
		return ErrExists
	} else if err != nil {
		return fmt.Errorf("create %s: %w", key, err)
	}
	return syncFolder(folder)
}

// writeTemporary writes a temporary file into a folder, durably, and returns its path. The file was
// modified at a time; zero is now.
func writeTemporary(folder string, data []byte, modified time.Time) (path string, err error) {
	temp, err := os.CreateTemp(folder, "*"+temporary)
	if err != nil {
		return "", fmt.Errorf("create temporary file: %w", err)
	}
	_, err = temp.Write(data)
	if err == nil {
		err = os.Chtimes(temp.Name(), time.Time{}, modified)
	}
	if err == nil {
		err = temp.Sync() // its time, too
	}
	return temp.Name(), errors.Join(err, temp.Close())
}

// makeFolder creates a folder of the store durably, but not the store's own: if that is gone, its
// volume may be.
func (s *Files) makeFolder(folder string) error {
	if _, err := os.Stat(folder); err == nil {
		return nil
	}
	below, err := filepath.Rel(s.root, folder)
	if err != nil {
		return fmt.Errorf("create folder: %w", err)
	}
	parent := s.root
	for part := range strings.SplitSeq(below, string(filepath.Separator)) {
		child := filepath.Join(parent, part)
		if err := os.Mkdir(child, folderMode); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("create folder: %w", err)
		}
		if err := syncFolder(parent); err != nil {
			return err
		}
		parent = child
	}
	return nil
}

func syncFolder(folder string) error {
	d, err := os.Open(folder)
	if err != nil {
		return fmt.Errorf("open folder: %w", err)
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return fmt.Errorf("sync folder: %w", err)
	}
	return nil
}

// Get implements Store.
func (s *Files) Get(ctx context.Context, key string, offset, n int64) (data []byte, about Object, err error) {
	type part struct {
		data  []byte
		about Object
	}
	p, err := within(ctx, s, s.reads, func() (part, error) {
		data, about, err := s.get(key, offset, n)
		return part{data, about}, err
	})
	return p.data, p.about, err
}

func (s *Files) get(key string, offset, n int64) ([]byte, Object, error) {
	path, err := s.path(key)
	if err != nil {
		return nil, Object{}, err
	}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, Object{}, ErrNotFound
	} else if err != nil {
		return nil, Object{}, fmt.Errorf("open %s: %w", key, err)
	}
	defer f.Close() //nolint:errcheck // only read
	info, err := f.Stat()
	if err != nil {
		return nil, Object{}, fmt.Errorf("look at %s: %w", key, err)
	}
	data := make([]byte, max(0, min(n, info.Size()-offset)))
	if _, err := f.ReadAt(data, offset); err != nil && !errors.Is(err, io.EOF) {
		return nil, Object{}, fmt.Errorf("read %s: %w", key, err)
	}
	return data, objectOf(info), nil
}

func objectOf(info fs.FileInfo) Object {
	return Object{Name: info.Name(), Size: info.Size(), Modified: info.ModTime()}
}

// List implements Store.
func (s *Files) List(ctx context.Context, folder, after string) (objects []Object, more bool, err error) {
	objects, err = within(ctx, s, s.reads, func() ([]Object, error) { return s.list(folder, after) })
	return objects, len(objects) == filesPage, err
}

func (s *Files) list(folder, after string) ([]Object, error) {
	path, err := s.path(folder)
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(path) // sorted by name
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("list %s: %w", folder, err)
	}
	first, found := slices.BinarySearchFunc(entries, after, func(e fs.DirEntry, name string) int { return strings.Compare(e.Name(), name) })
	if found {
		first++
	}
	var objects []Object
	for _, e := range entries[first:] {
		if e.IsDir() || strings.HasSuffix(e.Name(), temporary) {
			continue
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) { // deleted meanwhile
			continue
		} else if err != nil {
			return nil, fmt.Errorf("list %s: %w", folder, err)
		}
		if objects = append(objects, objectOf(info)); len(objects) == filesPage {
			break
		}
	}
	return objects, nil
}

// Delete implements Store.
func (s *Files) Delete(ctx context.Context, key string) error {
	_, err := within(ctx, s, s.writes, func() (struct{}, error) { return struct{}{}, s.remove(key) })
	return err
}

func (s *Files) remove(key string) error {
	path, err := s.path(key)
	if err != nil {
		return err
	}
	if err := os.Remove(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return fmt.Errorf("delete %s: %w", key, err)
	}
	return syncFolder(filepath.Dir(path))
}

// Now implements Store: the clock is the file system's, which may be another machine's.
func (s *Files) Now(ctx context.Context) (time.Time, error) { return within(ctx, s, s.writes, s.now) }

func (s *Files) now() (time.Time, error) {
	temp, err := os.CreateTemp(s.root, clockName+"*"+temporary)
	if err != nil {
		return time.Time{}, fmt.Errorf("create temporary file: %w", err)
	}
	defer os.Remove(temp.Name()) //nolint:errcheck // the next start removes it
	info, err := temp.Stat()
	if err = errors.Join(err, temp.Close()); err != nil {
		return time.Time{}, fmt.Errorf("read the file system's clock: %w", err)
	}
	return info.ModTime(), nil
}
