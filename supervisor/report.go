package supervisor

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"
)

// A Report is the result of a sweep. Its names are those of the design.
type Report struct {
	ID    string `json:"report_id"`
	Kind  string `json:"report_kind"` // OperationsReport
	Event string `json:"event_type"`  // HEALTH_SWEEP_COMPLETE
	// Sweep counts the sweeps of the cluster. By and Process are whose it was.
	Sweep   uint64 `json:"sweep"`
	By      string `json:"by"`
	Process string `json:"process"`

	Total     int   `json:"total_components"`
	Healthy   int   `json:"healthy_count"`
	Unhealthy int   `json:"unhealthy_count"`
	Missed    int   `json:"missed_count"` // heartbeats, in this sweep
	Restarted int   `json:"restarted_count"`
	Alerts    int   `json:"alert_count"`
	Duration  int64 `json:"sweep_duration_ms"`

	Findings []Finding `json:"unhealthy_components"`
	Events   []Event   `json:"events,omitempty"`

	RegistryAge int64          `json:"registry_age_ms"`
	Settings    map[string]any `json:"settings"`
	Locked      map[string]any `json:"locked"`
	Paused      []Pause        `json:"paused,omitempty"`
	// Unwatched are nodes whose components cannot be checked, because no other machine reaches the
	// address that they report, or they report none.
	Unwatched []string `json:"unwatched,omitempty"`
	// FiredAt is when the sweep began, by the clock of the node that sweeps.
	FiredAt int64 `json:"fired_at_ms"`

	// Sweeps is the number of consecutive sweeps with the same result that the report covers. The
	// first began at FirstAt; the other numbers are those of the last.
	Sweeps  int   `json:"sweeps"`
	FirstAt int64 `json:"first_at_ms"`
}

const (
	reportKind  = "OperationsReport"
	reportEvent = "HEALTH_SWEEP_COMPLETE"
	// joined is for how long reports that say the same are kept as one.
	joined = time.Hour
)

// quiet reports whether nothing happened in the sweep.
func (r *Report) quiet() bool { return len(r.Events) == 0 && r.Restarted == 0 }

// After joins the report with the one before it, if both say the same, and reports whether it did.
func (r *Report) after(last *Report) bool {
	areQuiet := last != nil && last.quiet() && r.quiet()
	if !areQuiet || !r.says(last) {
		return false
	}
	if isLater := r.FiredAt >= last.FiredAt; !isLater || r.FiredAt-last.FirstAt > joined.Milliseconds() {
		return false
	}
	r.Sweeps = last.Sweeps + 1
	r.FirstAt = last.FirstAt
	return true
}

// says reports whether two reports of a process say the same.
func (r *Report) says(other *Report) bool {
	counts := func(r *Report) [2]int { return [2]int{r.Total, r.Healthy} }
	switch {
	case r.Process != other.Process, counts(r) != counts(other):
		return false
	case !maps.Equal(r.Settings, other.Settings), !slices.Equal(r.Unwatched, other.Unwatched), !reflect.DeepEqual(r.Paused, other.Paused):
		return false
	}
	return slices.EqualFunc(r.Findings, other.Findings, func(a, b Finding) bool {
		return a.Slug == b.Slug && a.Action == b.Action && a.Cause == b.Cause && a.Process == b.Process
	})
}

// newReport makes the report of a sweep that began at a time.
func newReport(at time.Time) Report {
	return Report{
		ID: fmt.Sprintf("ops_health_%d", at.UnixMilli()), Kind: reportKind, Event: reportEvent, FiredAt: at.UnixMilli(), FirstAt: at.UnixMilli(), Sweeps: 1,
		Locked: locked(), Findings: []Finding{},
	}
}
