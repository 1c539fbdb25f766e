package notice

import (
	"fmt"
	"slices"
	"strings"
)

// The kinds of notices; see Table.
const (
	KindRestarted          = "restarted"
	KindDead               = "dead"
	KindMemberRefused      = "member_refused"
	KindMoved              = "moved"
	KindHandedOver         = "handed_over"
	KindPartitionFailed    = "partition_failed"
	KindStuck              = "stuck"
	KindReading            = "reading"
	KindSubscriberReplaced = "subscriber_replaced"
	KindResync             = "resync"
	KindResyncComplete     = "resync_complete"
	KindRewound            = "rewound"
	KindBreakerOpened      = "breaker_opened"
	KindBreakerClosed      = "breaker_closed"
	KindDegraded           = "degraded"
	KindRecovered          = "recovered"
)

// A Rule defines a kind of notice.
type Rule struct {
	Channel Channel
	Kind    string
	// Levels are the allowed severities.
	Levels []Severity
	// Fields are the required fields; others are allowed.
	Fields []string
	// Tells is a short description.
	Tells string
}

// Table returns the rules of all kinds, by channel. Alert rules and webhook receivers rely on them: kinds and fields may be added but never
// change their meaning.
func Table() []Rule {
	return []Rule{
		{Health, KindRestarted, []Severity{Info, Warning}, []string{"member", "member_kind", "old_started_at", "new_started_at"},
			"a member has restarted"},
		{Health, KindDead, []Severity{Critical}, []string{"member", "member_kind", "last_heartbeat", "partitions"},
			"a member is down; its `partitions` are not served until they are reassigned"},
		{Health, KindMemberRefused, []Severity{Warning, Critical}, []string{"member", "code"},
			"a member was refused: its record does not match the cluster, or is unreadable"},
		{Health, KindMoved, []Severity{Info}, []string{"plan", "moves", "cause"},
			"partitions were reassigned"},
		{Health, KindHandedOver, []Severity{Info, Warning}, []string{"from", "to", "partitions", "handed_over"},
			"a node has handed `partitions` over to another; a warning if it had to release some of them instead"},
		{Health, KindPartitionFailed, []Severity{Critical}, []string{"subscriber", "code"},
			"a shared subscriber has stopped and requires an operator"},
		{Health, KindStuck, []Severity{Critical}, []string{"last_reply", "partitions"},
			"a node has read nothing for 30 s: MongoDB does not answer, rejects every position, or returns nothing although its oplog advances"},
		{Health, KindReading, []Severity{Info}, []string{"was_stuck_seconds"},
			"the node reads again"},
		{Health, KindSubscriberReplaced, []Severity{Warning}, []string{"subscriber", "identity", "process", "at_node", "started_at"},
			"another process has taken over the name of a connected subscriber, which is disconnected; `process` is the new one"},
		{Resync, KindResync, []Severity{Critical}, []string{"lost_from", "lost_to", "reason", "namespaces"},
			"changes in a stretch of the oplog may have been missed; partitions are stale until the affected subscribers have acknowledged the loss"},
		{Resync, KindResyncComplete, []Severity{Info}, []string{"member", "member_kind", "partitions_resent", "duration_ms"},
			"a restarted member has received its partitions again and serves them"},
		{Resync, KindRewound, []Severity{Warning}, []string{"subscriber", "generation"},
			"an operator rewound a subscriber; later changes are redelivered"},
		{Breaker, KindBreakerOpened, []Severity{Warning}, []string{"breaker", "reason", "failure_count"},
			"a dependency or a member keeps failing; requests to it are suspended"},
		{Breaker, KindBreakerClosed, []Severity{Info}, []string{"breaker", "was_open_seconds"},
			"the dependency or member has recovered"},
		{Degradation, KindDegraded, []Severity{Warning, Critical}, []string{"member", "member_kind", "failed_checks"},
			"a member fails health checks: warning if it can still work, critical if it cannot"},
		{Degradation, KindRecovered, []Severity{Info}, []string{"member", "member_kind", "was_degraded_seconds"},
			"the member passes its health checks again"},
	}
}

// Check returns an error if a notice violates the Table: unknown kind, wrong channel or severity, missing field. Boards do not call it;
// tests do.
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
