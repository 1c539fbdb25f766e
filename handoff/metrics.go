package handoff

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
)

// metrics count the partitions that a donor hands over.
type metrics struct {
	handed *prometheus.CounterVec
	took   prometheus.Histogram
}

// newMetrics returns the metrics and registers them; nil registers them nowhere.
func newMetrics(reg prometheus.Registerer) metrics {
	m := metrics{
		handed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "streamer", Name: "handoffs_total", Help: "Partitions that the plan assigned to another node: handed over, or released for it to claim.",
		}, []string{"outcome"}),
		took: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: "streamer", Name: "handoff_seconds", Help: "Time from the end of a term to the end of the transaction that hands its partition to another node.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 14),
		}),
	}
	if reg != nil {
		reg.MustRegister(m.handed, m.took)
	}
	return m
}

// observe counts a handoff by the time that it took, with its trace as the exemplar if it is
// recorded.
func (m metrics) observe(took time.Duration, span trace.SpanContext) {
	exemplary, is := m.took.(prometheus.ExemplarObserver)
	if !is || !span.IsSampled() {
		m.took.Observe(took.Seconds())
		return
	}
	exemplary.ObserveWithExemplar(took.Seconds(), prometheus.Labels{"trace_id": span.TraceID().String()})
}
