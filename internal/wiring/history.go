package wiring

import (
	"context"
	"time"

	"github.com/mongostream/streamer/internal/admin"
)

// runHistory takes samples for the charts of the status page until the context ends.
func (s *Service) runHistory(ctx context.Context) {
	tick := time.NewTicker(admin.HistoryEvery)
	defer tick.Stop()
	for {
		s.history.Note(time.Now(), s.member.Overview().Members, s.node.Subscribers(), s.stages())
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// stages returns how long changes have taken in the stages that the node measures, as its metrics
// say.
func (s *Service) stages() (all []admin.Stage) {
	families, _ := s.registry.histograms.Gather() // metrics with errors are missing
	for _, f := range families {
		for _, m := range f.GetMetric() {
			stage := admin.Stage{Seconds: m.GetHistogram().GetSampleSum(), Count: m.GetHistogram().GetSampleCount()}
			switch f.GetName() {
			case "streamer_mongodb_held_seconds":
				stage.Name = "mongodb"
			case "streamer_stage_seconds":
				stage.Name = m.GetLabel()[0].GetValue()
			default:
				continue
			}
			all = append(all, stage)
		}
	}
	return all
}
