package stream

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/mongostream/streamer/change"
	devmongo "github.com/mongostream/streamer/dev/mongo"
	"github.com/mongostream/streamer/dev/mongo/devmongotest"
)

// heldFor returns how many replies held their first change longer than bound, and how many were
// measured.
func heldFor(t *testing.T, registry *prometheus.Registry, bound float64) (longer, all uint64) {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "streamer_mongodb_held_seconds" {
			continue
		}
		h := f.GetMetric()[0].GetHistogram()
		longer = h.GetSampleCount()
		all = longer
		for _, b := range h.GetBucket() {
			if b.GetUpperBound() == bound {
				longer -= b.GetCumulativeCount()
			}
		}
	}
	return longer, all
}

// holdingScene returns a scene whose writes do not wait for the journal, which is written that
// often; never means at once.
func holdingScene(t *testing.T, journal time.Duration) (*scene, *prometheus.Registry) {
	t.Helper()
	server := devmongotest.Start(t, devmongo.Config{Release: "7.0", Adjust: func(p *devmongo.Profile) { p.JournalEvery = journal }})
	registry := prometheus.NewRegistry()
	s := newScene(t, server.URI(), SourceConfig{Registerer: registry})
	s.coll = s.coll.Database().Collection("c", options.Collection().SetWriteConcern(writeconcern.W1()))
	return s, registry
}

// What MongoDB holds until its journal is written is measured, though no clock of the node is
// compared with one of MongoDB's.
func TestHeldChangesAreMeasured(t *testing.T) {
	s, registry := holdingScene(t, 100*time.Millisecond)
	stream := s.open(change.Position{})
	ctx, stop := context.WithCancel(t.Context())
	var writer sync.WaitGroup
	writer.Go(func() {
		for ctx.Err() == nil {
			_, _ = s.coll.InsertOne(ctx, bson.D{})
		}
	})
	defer writer.Wait()
	defer stop()
	for longer := uint64(0); longer == 0; longer, _ = heldFor(t, registry, .025) {
		s.read(stream, 1)
	}
}

// Changes that come while the node asks for none have waited for the node: they do not count.
func TestChangesThatWaitForTheNodeAreNotHeld(t *testing.T) {
	s, registry := holdingScene(t, 0)
	stream := s.open(change.Position{})
	id := 0
	for range 5 {
		id++
		s.insert(id)
		s.read(stream, 1) // everything is read, and the next request is not sent yet
		before := id
		for begun := time.Now(); time.Since(begun) < 50*time.Millisecond; {
			id++
			s.insert(id)
		}
		s.read(stream, id-before)
	}
	// Wall times are whole milliseconds.
	if longer, all := heldFor(t, registry, .0025); longer > 0 || all < 5 {
		t.Errorf("of %d replies, %d held their first change", all, longer)
	}
}
