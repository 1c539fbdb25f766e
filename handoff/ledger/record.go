package ledger

import (
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/cluster/roster"
)

// A Party is one process of one node.
type Party struct {
	Node    string `json:"node"`
	Process string `json:"process"`
}

// A Phase is how far a handoff has come in the ledger. The empty Phase is that of no record.
type Phase string

// The phases.
const (
	Prepared Phase = "prepared" // the donor owns the partition
	Switched Phase = "switched" // the recipient owns it, and the donor may still deliver
)

// A Record is a handoff as the ledger has it.
type Record struct {
	Partition change.Partition
	From, To  Party
	// Epoch is the one under which From owned the partition when the handoff began.
	Epoch change.Epoch
	// Cause says what for, and By who asked: an operator, the leader, the donor.
	Cause, By string
	// Started is by the clock of who asked; informative.
	Started time.Time
	Phase   Phase
	// Revision is the ledger's at which the record was written; 0 for one that was not yet.
	Revision int64
}

// Same reports whether two records are of one handoff, whatever its phase.
func (r Record) Same(s Record) bool {
	return r.Partition == s.Partition && r.From == s.From && r.To == s.To && r.Epoch == s.Epoch && r.Started.Equal(s.Started)
}

// An Answer is what the recipient says to a record. The zero Answer is none.
type Answer struct {
	// To is the revision of the record that is answered.
	To int64
	// Refusal says why the recipient will not have the partition, empty where it is ready.
	Refusal string
	// Revision is the ledger's at which the answer was written.
	Revision int64
}

// A Sight is what the ledger shows of a partition at one revision.
type Sight struct {
	Record Record // the zero Record for none
	Answer Answer // to any record
	Owner  roster.Owner
	// Absent says that the membership of the record's recipient has ended.
	Absent bool
}

// Ready reports whether the recipient waits for the switch of the record that stands.
func (s Sight) Ready() bool {
	return s.Record.Phase == Prepared && s.Answer.To == s.Record.Revision && s.Answer.Refusal == ""
}

// Refused is why the recipient will not have it, empty unless it says so.
func (s Sight) Refused() string {
	if s.Answer.To != s.Record.Revision {
		return ""
	}
	return s.Answer.Refusal
}
