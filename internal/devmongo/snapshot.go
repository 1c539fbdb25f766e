package devmongo

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/mongostream/streamer/internal/devmongo/oplog"
	"github.com/mongostream/streamer/internal/devmongo/snapshot"
	"github.com/mongostream/streamer/internal/devmongo/store"
)

// restore reads the snapshot, or begins a new replica set where there is none.
func (s *Server) restore() error {
	config := oplog.Config{Release: s.node.Release, MaxBytes: s.config.OplogBytes, Lags: s.node.JournalEvery > 0, Shards: s.node.Shards}
	if s.config.Snapshot != "" {
		x, err := snapshot.Read(s.config.Snapshot, s.config.Release)
		if err == nil {
			err = s.adopt(config, x)
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return wrap(s.config.Snapshot, err)
		}
	}
	s.node.Oplog = oplog.New(config)
	s.node.Store = store.New(s.node.Oplog)
	return nil
}

func (s *Server) adopt(config oplog.Config, x snapshot.Snapshot) (err error) {
	if s.node.Oplog, err = oplog.Restore(config, x.Entries, x.ClusterTime); err != nil {
		return err
	}
	s.node.Store = store.New(s.node.Oplog)
	s.node.Set = x.Set
	s.saved.Store(x.ClusterTime)
	return s.node.Store.Import(x.Export)
}

// save writes the snapshot, unless nothing has changed since the last.
func (s *Server) save() error {
	path := s.config.Snapshot
	if path == "" || s.saved.Load() == s.node.Oplog.ClusterTime() {
		return nil
	}
	x := snapshot.Snapshot{Export: s.node.Store.Export(), Release: s.config.Release, Set: s.node.Set}
	if err := snapshot.Write(path, x); err != nil {
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
