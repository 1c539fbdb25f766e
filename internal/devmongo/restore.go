package devmongo

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/mongostream/streamer/internal/devmongo/oplog"
	"github.com/mongostream/streamer/internal/devmongo/store"
)

// restore reads the snapshot, or begins a new replica set where there is none.
func (s *Server) restore() error {
	config := oplog.Config{Release: s.node.release, MaxBytes: s.config.OplogBytes, Lags: s.node.JournalEvery > 0, Shards: s.node.shards}
	if s.config.Snapshot != "" {
		x, err := store.ReadSnapshot(s.config.Snapshot, s.config.Release)
		if err == nil {
			err = s.adopt(config, x)
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return wrap(s.config.Snapshot, err)
		}
	}
	s.node.oplog = oplog.New(config)
	s.node.store = store.New(s.node.oplog)
	return nil
}

func (s *Server) adopt(config oplog.Config, x store.Snapshot) (err error) {
	if s.node.oplog, err = oplog.Restore(config, x.Entries, x.ClusterTime); err != nil {
		return err
	}
	s.node.store = store.New(s.node.oplog)
	s.node.set = x.Set
	s.saved.Store(x.ClusterTime)
	return s.node.store.Import(x.Export)
}

// save writes the snapshot, unless nothing has changed since the last.
func (s *Server) save() error {
	path := s.config.Snapshot
	if path == "" || s.saved.Load() == s.node.oplog.ClusterTime() {
		return nil
	}
	x := store.Snapshot{Export: s.node.store.Export(), Release: s.config.Release, Set: s.node.set}
	if err := store.WriteSnapshot(path, x); err != nil {
		return wrap(path, err)
	}
	s.saved.Store(x.ClusterTime)
	return nil
}

func wrap(path string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("devmongo snapshot %s: %w", path, err)
}
