package notice

import (
	"fmt"
	"slices"
	"strings"
)

// The kinds of notices. Table says what each is about.
const (
	KindRestarted       = "restarted"
	KindDead            = "dead"
	KindMemberRefused   = "member_refused"
	KindMoved           = "moved"
	KindHandedOver      = "handed_over"
	KindPartitionFailed = "partition_failed"
	KindStuck           = "stuck"
	KindReading         = "reading"
	KindResync          = "resync"
	KindResyncComplete  = "resync_complete"
	KindRewound         = "rewound"
	KindBreakerOpened   = "breaker_opened"
	KindBreakerClosed   = "breaker_closed"
	KindDegraded        = "degraded"
	KindRecovered       = "recovered"
)

// A Rule says how notices of a kind look.
type Rule struct {
	Channel Channel
	Kind    string
	// Levels are the severities that such a notice may have.
	Levels []Severity
	// Fields are the particulars that it must have; it may have more.
	Fields []string
	// Tells says in half a sentence what has happened.
	Tells string
}

// Table returns the rules of all kinds, by channel. Operators' rules and receivers of webhooks rely on it: kinds and fields are added, and
// never change their meaning.
func Table() []Rule {
	return []Rule{
		{Health, KindRestarted, []Severity{Info, Warning}, []string{"member", "member_kind", "old_started_at", "new_started_at"},
			"a member has come back as another process"},
		{Health, KindDead, []Severity{Critical}, []string{"member", "member_kind", "last_heartbeat", "partitions"},
			"nothing is heard of a member any more; `partitions` are those that nobody serves until others have taken them"},
		{Health, KindMemberRefused, []Severity{Warning, Critical}, []string{"member", "code"},
			"a member cannot take part: what it says of itself does not fit the cluster, or cannot be read"},
		{Health, KindMoved, []Severity{Info}, []string{"plan", "moves", "cause"},
			"partitions have got other owners"},
		{Health, KindHandedOver, []Severity{Info, Warning}, []string{"moved", "stayed", "lost", "handoffs"},
			"a node has handed partitions over, or kept them: `handoffs` says which, to whom, what for and how long it took; a warning where not all have moved"},
		{Health, KindPartitionFailed, []Severity{Critical}, []string{"subscriber", "code"},
			"a shared subscriber has stopped and waits for an operator"},
		{Health, KindStuck, []Severity{Critical}, []string{"last_reply", "partitions"},
			"a node reads nothing for 30 s: MongoDB does not answer, refuses every position, or answers without anything although its log moves"},
		{Health, KindReading, []Severity{Info}, []string{"was_stuck_seconds"},
			"it reads again"},
		{Resync, KindResync, []Severity{Critical}, []string{"lost_from", "lost_to", "reason", "namespaces"},
			"changes in a stretch of the oplog may have been missed; partitions are stale until the subscribers concerned have acknowledged that"},
		{Resync, KindResyncComplete, []Severity{Info}, []string{"member", "member_kind", "partitions_resent", "duration_ms"},
			"a member that was restarted has been told again what is its own, and serves it"},
		{Resync, KindRewound, []Severity{Warning}, []string{"subscriber", "generation"},
			"an operator has moved a subscriber back: what follows is redelivered"},
		{Breaker, KindBreakerOpened, []Severity{Warning}, []string{"breaker", "reason", "failure_count"},
			"a dependency or a member fails and is left alone for a while"},
		{Breaker, KindBreakerClosed, []Severity{Info}, []string{"breaker", "was_open_seconds"},
			"it answers again"},
		{Degradation, KindDegraded, []Severity{Warning, Critical}, []string{"member", "member_kind", "failed_checks"},
			"a member fails checks: warning where it can do its work, critical where it cannot"},
		{Degradation, KindRecovered, []Severity{Info}, []string{"member", "member_kind", "was_degraded_seconds"},
			"it passes them again"},
	}
}

// Check says what is wrong with a notice by the Table: its kind, channel, severity, or a field that is missing. Boards take every
// notice; tests of those who post hold theirs to it.
func Check(n Notice) error {
	table := Table()
	i := slices.IndexFunc(table, func(r Rule) bool { return r.Kind == n.Kind })
	if i < 0 {
		return fmt.Errorf("there is no kind %q", n.Kind)
	}
	rule := table[i]
	var missing []string
	for _, name := range rule.Fields {
		if _, there := n.Fields[name]; !there {
			missing = append(missing, name)
		}
	}
	switch {
	case n.Channel != rule.Channel:
		return fmt.Errorf("%s: channel %q, must be %q", n.Kind, n.Channel, rule.Channel)
	case !slices.Contains(rule.Levels, n.Level):
		return fmt.Errorf("%s: severity %q, must be one of %v", n.Kind, n.Level, rule.Levels)
	case len(missing) > 0:
		return fmt.Errorf("%s: without %s", n.Kind, strings.Join(missing, ", "))
	case n.Text == "":
		return fmt.Errorf("%s: without a text", n.Kind)
	}
	return nil
}
