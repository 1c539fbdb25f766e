package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/fault"
)

// archiveVersion is what Export writes, and the highest that Import reads.
const archiveVersion = 1

// An Archive is all checkpoints of a cluster, and its gap log, in one document. It contains the
// tokens.
type Archive struct {
	Origin      checkpoint.Origin
	Checkpoints []checkpoint.Checkpoint // in the order of checkpoint.Sort
	Gaps        []checkpoint.Gap        // in the order in which they were found
	At          time.Time
	By          string
}

// An archived is an Archive as it is written: origin and checkpoints have the form in which stores
// keep them.
type archived struct {
	Version     int               `json:"streamer_checkpoints"`
	At          time.Time         `json:"exported_at"`
	By          string            `json:"by"`
	Origin      json.RawMessage   `json:"origin"`
	Backend     json.RawMessage   `json:"backend,omitempty"`
	Checkpoints []json.RawMessage `json:"checkpoints"`
	Gaps        []json.RawMessage `json:"gaps,omitempty"`
}

// Export reads all checkpoints and the gap log. An unreadable entry is an error: an archive is
// complete or is not made.
func Export(ctx context.Context, s Store, by string) (Archive, error) {
	origin, err := ReadOrigin(ctx, s)
	if err != nil {
		return Archive{}, err
	}
	all, err := s.List(ctx)
	gaps, unread := s.Gaps(ctx)
	return Archive{Origin: origin, Checkpoints: all, Gaps: gaps, At: time.Now().UTC(), By: by}, errors.Join(err, unread)
}

// Write writes the archive as one JSON document.
func (a Archive) Write(w io.Writer) error {
	origin, err := checkpoint.EncodeOrigin(a.Origin)
	if err != nil {
		return err
	}
	backend, err := checkpoint.EncodeBackend(a.Origin.Backend)
	if err != nil {
		return err
	}
	out := archived{Version: archiveVersion, At: a.At, By: a.By, Origin: origin, Backend: backend, Checkpoints: make([]json.RawMessage, len(a.Checkpoints))}
	for i, c := range a.Checkpoints {
		if out.Checkpoints[i], err = checkpoint.Encode(c, checkpoint.Trail{}); err != nil {
			return err
		}
	}
	for _, g := range a.Gaps {
		text, err := checkpoint.EncodeGap(g)
		if err != nil {
			return err
		}
		out.Gaps = append(out.Gaps, text)
	}
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(out); err != nil {
		return fmt.Errorf("write archive: %w", err)
	}
	return nil
}

// ReadArchive reads the output of Write; name is the document's name in errors, which are the
// faults of checkpoints.
func ReadArchive(r io.Reader, name string) (Archive, error) {
	data, err := io.ReadAll(r)
	if err != nil {
		return Archive{}, fmt.Errorf("read archive: %w", err)
	}
	corrupt := func(cause error) (Archive, error) {
		return Archive{}, fault.Newf(fault.CheckpointCorrupt, "%s: %w", name, cause)
	}
	var head struct {
		Version int `json:"streamer_checkpoints"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return corrupt(err)
	}
	switch {
	case head.Version > archiveVersion:
		return Archive{}, fault.Newf(fault.CheckpointNewer, "%s has version %d, this program reads up to %d", name, head.Version, archiveVersion)
	case head.Version < 1:
		return corrupt(errors.New("it is no export of checkpoints"))
	}
	var in archived
	if err := json.Unmarshal(data, &in); err != nil {
		return corrupt(err)
	}
	a := Archive{At: in.At, By: in.By}
	if a.Origin, err = checkpoint.DecodeOrigin(name+", origin", 0, in.Origin); err != nil {
		return Archive{}, err
	}
	if a.Origin.Backend, err = checkpoint.DecodeBackend(name+", backend", in.Backend); err != nil {
		return Archive{}, err
	}
	there := make(map[checkpoint.Key]bool, len(in.Checkpoints))
	for i, text := range in.Checkpoints {
		called := fmt.Sprintf("%s, checkpoint %d", name, i+1)
		whose := func(checkpoint.Key) string { return called }
		c, _, err := checkpoint.Decode(called, whose, a.Origin.Partitions, text)
		if err != nil {
			return Archive{}, err
		}
		if there[c.Key] {
			return corrupt(fmt.Errorf("the checkpoint of %s is there twice", c.Key))
		}
		there[c.Key] = true
		a.Checkpoints = append(a.Checkpoints, c)
	}
	for i, text := range in.Gaps {
		g, err := checkpoint.DecodeGap(fmt.Sprintf("%s, gap %d", name, i+1), text)
		if err != nil {
			return Archive{}, err
		}
		a.Gaps = append(a.Gaps, g)
	}
	checkpoint.Sort(a.Checkpoints)
	return a, nil
}
