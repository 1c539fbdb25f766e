package retention

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

var _ rewriter = (*Files)(nil)

// forgetLock is the file that is locked while segments are replaced.
const forgetLock = ".forget"

// abandoned is after how long a temporary file is certainly that of an interrupted write. A writer
// whose file goes tries again.
const abandoned = 10 * storeTimeout

// Replace implements rewriter by rename(2). A reader that has opened the file keeps the old one.
// The new one has the old one's time, because the contents are as old, and expire by it. Files have
// no versions: Hold keeps others from replacing them.
func (s *Files) Replace(ctx context.Context, key string, data []byte, _ string) error {
	_, err := within(ctx, s, s.writes, func() (struct{}, error) { return struct{}{}, s.replace(key, data) })
	return err
}

func (s *Files) replace(key string, data []byte) error {
	path, err := s.path(key)
	if err != nil {
		return err
	}
	before, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return ErrNotFound
	} else if err != nil {
		return fmt.Errorf("look at %s: %w", key, err)
	}
	folder := filepath.Dir(path)
	temp, err := writeTemporary(folder, data, before.ModTime())
	defer os.Remove(temp) //nolint:errcheck // it has another name by then
	if err != nil {
		return err // it names the file
	}
	if err := os.Rename(temp, path); err != nil {
		return fmt.Errorf("replace %s: %w", key, err)
	}
	return syncFolder(folder)
}

// Hold implements rewriter.
func (s *Files) Hold(ctx context.Context, _ string) (release func(), err error) {
	return within(ctx, s, s.writes, s.hold)
}

func (s *Files) hold() (release func(), err error) {
	lock, err := os.OpenFile(filepath.Join(s.root, forgetLock), os.O_CREATE|os.O_RDWR, fileMode)
	if err != nil {
		return nil, fmt.Errorf("open lock: %w", err)
	}
	if err := flock(lock, syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("lock folder: somebody else erases: %w", err), lock.Close())
	}
	err = filepath.WalkDir(filepath.Join(s.root, "v1"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, temporary) {
			return err
		}
		info, err := d.Info()
		if err != nil || time.Since(info.ModTime()) < abandoned {
			return nil //nolint:nilerr // it has gone, or is being written
		}
		if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) { //nolint:gosec // whoever may put links into the folder may remove its files
			return err
		}
		return nil // whoever wrote it has removed it
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("remove what interrupted writes have left: %w", err), lock.Close())
	}
	return func() { _ = lock.Close() }, nil
}
