package backend

import (
	"context"
	"strings"

	"github.com/mongostream/streamer/internal/s3"
	"github.com/mongostream/streamer/internal/s3/uri"
	"github.com/mongostream/streamer/retention"
)

// A Retained is a store of retained logs.
type Retained interface {
	retention.Store
	// Chains returns the folders of the chains in the store, for retention.ChainAt.
	Chains(ctx context.Context) ([]string, error)
	Close() error
}

// SharedStore reports whether the nodes of a cluster share the store of a URL.
func SharedStore(url string) bool { return strings.HasPrefix(url, "s3:") }

// CheckRetained returns why a URL names no store.
func CheckRetained(url string) (err error) {
	if SharedStore(url) {
		_, err = uri.Parse(url)
	} else {
		_, err = retention.FolderOf(url)
	}
	return err
}

// OpenRetained returns the store of a URL. It asks nothing of the store yet.
func OpenRetained(url string) (Retained, error) {
	if SharedStore(url) {
		bucket, err := s3.Open(url)
		if err != nil {
			return nil, err
		}
		return bucket, nil
	}
	folder, err := retention.FolderOf(url)
	if err != nil {
		return nil, err
	}
	return retention.NewFiles(folder), nil
}

// ReadRetained returns the store of a URL for reading: a folder must exist, and is not changed.
func ReadRetained(url string) (Retained, error) {
	if SharedStore(url) {
		return OpenRetained(url)
	}
	folder, err := retention.FolderOf(url)
	if err != nil {
		return nil, err
	}
	files, err := retention.ReadFiles(folder)
	if err != nil {
		return nil, err
	}
	return files, nil
}
