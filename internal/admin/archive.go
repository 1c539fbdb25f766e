//go:build wip

package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/checkpoint/record"
	"github.com/mongostream/streamer/fault"
)

// archiveVersion is what Export writes, and the highest that Import reads.
const archiveVersion = 1

// An Archive is all marks of a cluster in one document. It contains the tokens.
type Archive struct {
	Origin checkpoint.Origin
	Marks  []checkpoint.Mark // in the order of their partitions
	At     time.Time
	By     string
}

// An archived is an Archive as it is written: origin and marks have the form in which stores keep them.
type archived struct {
	Version int             `json:"streamer_marks"`
	At      time.Time       `json:"exported_at"`
	By      string          `json:"by"`
	Origin  json.RawMessage `json:"origin"`
	Backend json.RawMessage `json:"backend,omitempty"`
	Marks   []archivedMark  `json:"marks"`
}

type archivedMark struct {
	Partition change.Partition `json:"partition"`
	Mark      json.RawMessage  `json:"mark"`
}

// Export reads all marks. One that cannot be read is an error: an archive is whole or is not made.
func Export(ctx context.Context, s Store, by string) (Archive, error) {
	origin, err := ReadOrigin(ctx, s)
	if err != nil {
		return Archive{}, err
	}
	marks, err := s.List(ctx)
	return Archive{Origin: origin, Marks: marks, At: time.Now().UTC(), By: by}, err
}

// Write writes the archive as one JSON document.
func (a Archive) Write(w io.Writer) error {
	origin, err := record.EncodeOrigin(a.Origin)
	if err != nil {
		return err
	}
	backend, err := record.EncodeBackend(a.Origin.Backend)
	if err != nil {
		return err
	}
	out := archived{Version: archiveVersion, At: a.At, By: a.By, Origin: origin, Backend: backend, Marks: make([]archivedMark, len(a.Marks))}
	for i, m := range a.Marks {
		value, err := record.EncodeMark(m, checkpoint.Trail{}, a.Origin.Partitions)
		if err != nil {
			return err
		}
		out.Marks[i] = archivedMark{Partition: m.Partition, Mark: value}
	}
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(out); err != nil {
		return fmt.Errorf("write archive: %w", err)
	}
	return nil
}

// ReadArchive reads what Write wrote; name is what the document is called in errors, which are the faults of marks.
func ReadArchive(r io.Reader, name string) (Archive, error) {
	data, err := io.ReadAll(r)
	if err != nil {
		return Archive{}, fmt.Errorf("read archive: %w", err)
	}
	corrupt := func(cause error) (Archive, error) {
		return Archive{}, fault.Newf(fault.CheckpointCorrupt, "%s: %w", name, cause)
	}
	var head struct {
		Version int `json:"streamer_marks"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return corrupt(err)
	}
	switch {
	case head.Version > archiveVersion:
		return Archive{}, fault.Newf(fault.CheckpointNewer, "%s has version %d, this program reads up to %d", name, head.Version, archiveVersion)
	case head.Version < 1:
		return corrupt(errors.New("it is no export of marks"))
	}
	var in archived
	if err := json.Unmarshal(data, &in); err != nil {
		return corrupt(err)
	}
	a := Archive{At: in.At, By: in.By}
	if a.Origin, err = record.DecodeOrigin(name+", origin", 0, in.Origin); err != nil {
		return Archive{}, err
	}
	if a.Origin.Backend, err = record.DecodeBackend(name+", backend", in.Backend); err != nil {
		return Archive{}, err
	}
	for _, archived := range in.Marks {
		key := fmt.Sprintf("%s, mark of partition %d", name, archived.Partition)
		m, _, err := record.DecodeMark(key, archived.Partition, a.Origin.Partitions, archived.Mark)
		if err != nil {
			return Archive{}, err
		}
		if slices.ContainsFunc(a.Marks, func(n checkpoint.Mark) bool { return n.Partition == m.Partition }) {
			return corrupt(fmt.Errorf("partition %d is there twice", m.Partition))
		}
		a.Marks = append(a.Marks, m)
	}
	return a, nil
}
