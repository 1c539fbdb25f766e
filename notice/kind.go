package notice

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// The kinds of notices; see Table.
const (
	KindRestarted              = "restarted"
	KindDead                   = "dead"
	KindMemberRefused          = "member_refused"
	KindMoved                  = "moved"
	KindHandedOver             = "handed_over"
	KindProblem                = "problem"
	KindProblemOver            = "problem_over"
	KindSubscriberReplaced     = "subscriber_replaced"
	KindSubscriberLoss         = "subscriber_loss"
	KindComponentDown          = "component_down"
	KindComponentRecovered     = "component_recovered"
	KindComponentRestarted     = "component_restarted"
	KindRestartBudgetExhausted = "restart_budget_exhausted"
	KindRestartsDamped         = "restarts_damped"
	KindSweepReport            = "sweep_report"
	KindSweepMissing           = "sweep_missing"
	KindSweepResumed           = "sweep_resumed"
	KindResync                 = "resync"
	KindResyncComplete         = "resync_complete"
	KindRewound                = "rewound"
	KindBreakerOpened          = "breaker_opened"
	KindBreakerClosed          = "breaker_closed"
	KindDegraded               = "degraded"
	KindRecovered              = "recovered"
	KindOperated               = "operated"
	KindLoginRefused           = "login_refused"
	KindLoginAccepted          = "login_accepted"
	KindSessionBegan           = "session_began"
	KindSessionEnded           = "session_ended"
	KindAuditOmitted           = "audit_omitted"
	KindCollectionMissing      = "collection_missing"
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
	// Alone says why a notice that is more than information is an event and not a problem: no
	// problem tells the same, or the problem is not told beside it. It is empty for others.
	Alone string
}

// States reports whether the notice tells the beginning or the end of a state that lasts. The other
// notices are events: they happened once, and are over when they are posted.
func (r Rule) States() bool { return r.Kind == KindProblem || r.Kind == KindProblemOver }

// Table returns the rules of all kinds, by channel. Problems say whether something is wrong, and
// how urgent that is; mere events are information. Alert rules and webhook receivers rely on them:
// kinds and fields may be added but never change their meaning.
func Table() []Rule {
	return []Rule{
		{Health, KindRestarted, []Severity{Info, Warning}, []string{"member", "member_kind", "old_started_at", "new_started_at"},
			"a member has restarted", "that its process was another one is over at once; what it misses meanwhile is a problem of its own"},
		{Health, KindDead, []Severity{Info}, []string{"member", "member_kind", "last_heartbeat", "partitions"},
			"a member is down; the `partitions` of a node are reassigned", ""},
		{Health, KindMemberRefused, []Severity{Info}, []string{"member", "code"},
			"a member was refused: its record does not match the cluster, or is unreadable", ""},
		{Health, KindMoved, []Severity{Info}, []string{"plan", "moves", "cause"},
			"partitions were reassigned", ""},
		{Health, KindHandedOver, []Severity{Info, Warning}, []string{"from", "to", "partitions", "handed_over"},
			"a node has handed `partitions` over to another; a warning if it had to release some of them instead", "the move is over, and the released partitions are claimed; those that nobody claims become a problem"},
		{Health, KindProblem, []Severity{Warning, Critical}, []string{"subject", "code", "since", "nodes", "partitions", "subscribers", "runbook"},
			"something is wrong, with all that follows from it: `/health` shows the same, and the code has the remedy", ""},
		{Health, KindProblemOver, []Severity{Info}, []string{"subject", "code", "lasted_seconds"},
			"the problem of this `subject` is over", ""},
		{Health, KindSubscriberReplaced, []Severity{Warning}, []string{"subscriber", "identity", "process", "at_node", "started_at"},
			"another process has taken over the name of a connected subscriber, which is disconnected; `process` is the new one", "the sessions of both are over or well: only a person knows which of the two is the right one"},
		{Health, KindSubscriberLoss, []Severity{Critical}, []string{"subscriber", "lost_from", "lost_to", "reason", "namespaces"},
			"a shared subscriber, as a sink, came back too late for the oplog: alone it may have missed the changes in between", "what is lost stays lost: nothing ends it. The problem that it is not acknowledged yet is shown, and not told again"},
		{Health, KindCollectionMissing, []Severity{Warning}, []string{"code", "sink"},
			"a sink names a collection or a database that does not exist yet", "a collection comes with its first document, so that nothing is wrong while there is none; once for each sink, for names that are misspelt"},
		{Health, KindComponentDown, []Severity{Info}, []string{"code", "slug", "member", "miss_count", "cause", "action"},
			"a component has made no progress or not answered for several sweeps; `action` is the remedy that was tried", ""},
		{Health, KindComponentRecovered, []Severity{Info}, []string{"code", "slug", "member"},
			"the component makes progress again", ""},
		{Health, KindComponentRestarted, []Severity{Info}, []string{"code", "slug", "member", "process", "level", "cause"},
			"a component was restarted: `level` is lane, within its process, or node", ""},
		{Health, KindRestartBudgetExhausted, []Severity{Info}, []string{"code", "slug", "member", "restarts", "window_seconds"},
			"a component was restarted too often and did not recover; it is not restarted until the window ends", ""},
		{Health, KindRestartsDamped, []Severity{Info}, []string{"code", "slugs", "cause"},
			"so much fails at once that the cause is probably elsewhere; not everything of it is restarted", ""},
		{Health, KindSweepReport, []Severity{Info}, []string{"code", "report_id", "total_components", "healthy_count", "unhealthy_count", "missed_count", "restarted_count"},
			"a sweep in which something was not as before; at most one a minute", ""},
		{Health, KindSweepMissing, []Severity{Info}, []string{"code", "last_sweep", "last_by", "silence_seconds"},
			"nobody has written a report for two intervals: nobody looks after the components", ""},
		{Health, KindSweepResumed, []Severity{Info}, []string{"code", "by"},
			"components are looked after again", ""},
		{Resync, KindResync, []Severity{Critical, Info}, []string{"lost_from", "lost_to", "reason", "namespaces"},
			"changes in a stretch of the oplog may have been missed; partitions are stale until the affected subscribers have acknowledged the loss. Info where a collection was only renamed onto a watched one (`renamed`)", "what is lost stays lost: nothing ends it. The problem that it is not acknowledged yet is shown, and not told again"},
		{Resync, KindResyncComplete, []Severity{Info}, []string{"member", "member_kind", "partitions_resent", "duration_ms"},
			"a restarted member has received its partitions again and serves them", ""},
		{Resync, KindRewound, []Severity{Warning}, []string{"subscriber", "generation"},
			"an operator rewound a subscriber; later changes are redelivered", "an operator did it, and nothing is wrong"},
		{Breaker, KindBreakerOpened, []Severity{Info}, []string{"breaker", "reason", "failure_count"},
			"a dependency or a member keeps failing; requests to it are suspended", ""},
		{Breaker, KindBreakerClosed, []Severity{Info}, []string{"breaker", "was_open_seconds"},
			"the dependency or member has recovered", ""},
		{Degradation, KindDegraded, []Severity{Info}, []string{"member", "member_kind", "failed_checks"},
			"a member fails checks: the leader gives it no partitions, or takes those that it has", ""},
		{Degradation, KindRecovered, []Severity{Info}, []string{"member", "member_kind", "was_degraded_seconds"},
			"the member passes its health checks again", ""},
		{Audit, KindOperated, []Severity{Info}, []string{"by", "command", "arguments"},
			"an operator has confirmed a command that changes something", ""},
		{Audit, KindLoginRefused, []Severity{Warning}, []string{"address", "transport", "reason", "count"},
			"a client was not let in: the first time at once, then how often from an address within a minute", "it is over; that somebody tries again and again is counted"},
		{Audit, KindLoginAccepted, []Severity{Info}, []string{"identity", "address", "transport", "count"},
			"an identity was let in: the first time at once, then how often from an address within an hour", ""},
		{Audit, KindSessionBegan, []Severity{Info}, []string{"identity", "address", "transport", "subscriber"},
			"a subscriber has connected", ""},
		{Audit, KindSessionEnded, []Severity{Info}, []string{"identity", "address", "transport", "subscriber", "why", "lasted_seconds"},
			"a subscriber's session has ended, and why", ""},
		{Audit, KindAuditOmitted, []Severity{Warning}, []string{"count"},
			"so many more of these were not written, because there were too many within a minute", "it tells what the audit log lacks"},
	}
}

// Public reports whether every client that may read one of a notice's Namespaces may get the
// notice. The other notices name subscribers or members, describe actions of operators and clients,
// or contain errors of a dependency: they are only for identities that may read everything.
func (n Notice) Public() bool {
	switch n.Kind {
	case KindMoved, KindHandedOver, KindResync:
		return true
	}
	return false
}

// A History is a bounded part of the stored notices, by who can cause them. Each has its own bound,
// and its own budget of posts: clients, who may come and go as often as they like, displace neither
// what concerns the service nor the record of operators' actions.
type History string

// The histories.
const (
	Service    History = ""           // notices about the service
	Clients    History = "clients"    // notices about gateways and other subscribers that connect
	Operations History = "operations" // notices about operations of operators
	Logins     History = "logins"     // logins and sessions
)

// Histories returns all histories.
func Histories() []History { return []History{Service, Clients, Operations, Logins} }

// History returns the history of a notice.
func (n Notice) History() History {
	switch {
	case n.Channel == Audit && n.Kind == KindOperated:
		return Operations
	case n.Channel == Audit:
		return Logins
	case n.Fields["member_kind"] == MemberGateway || n.Kind == KindSubscriberReplaced:
		return Clients
	}
	return Service
}

// MemberGateway is the member_kind of gateways.
const MemberGateway = "gateway"

// newest takes the oldest notices of each history beyond the bound out of the notices, and returns
// the others and these.
func newest(notices []Notice, keep int) (kept, removed []Notice) {
	if len(notices) <= keep {
		return notices, nil
	}
	over := make(map[History]int)
	for _, n := range notices {
		over[n.History()]++
	}
	for _, h := range Histories() {
		over[h] -= keep
	}
	kept = slices.DeleteFunc(notices, func(n Notice) bool {
		h := n.History()
		if over[h] <= 0 {
			return false
		}
		over[h]--
		removed = append(removed, n)
		return true
	})
	return kept, removed
}

// Newest returns the newest notices of each history, as many of each as the bound says.
func Newest(notices []Notice, keep int) []Notice {
	kept, _ := newest(notices, keep)
	return kept
}

// namespaces is the field that names the namespaces that a notice is about.
const namespaces = "namespaces"

// Namespaces returns the namespaces that the notice is about; none means none in particular.
func (n Notice) Namespaces() (names []string) {
	switch list := n.Fields[namespaces].(type) {
	case []string:
		return list
	case []any: // from the history
		for _, name := range list {
			names = append(names, fmt.Sprint(name))
		}
	}
	return names
}

// Narrowed returns the notice for a client that may know only these namespaces.
func (n Notice) Narrowed(names []string) Notice {
	if _, there := n.Fields[namespaces]; there {
		n.Fields = maps.Clone(n.Fields)
		n.Fields[namespaces] = names
	}
	return n
}

// Check returns an error if a notice violates the Table: unknown kind, wrong channel or severity,
// missing field. Boards do not call it; tests do.
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
