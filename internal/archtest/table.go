package archtest

// A rule says what of ours a package may import. Patterns are paths within the module; one that ends in /... means the
// package and all below it. Everybody may import fault.
type rule struct {
	pkg string
	may []string
	why string
}

// packages is the import table: the words of the two flows, then adapters and tools.
func packages() []rule {
	everything := []string{"..."}
	return []rule{
		{"cmd/streamer", everything, "wiring in the order of the flow: the planes meet only here"},
		{"cmd/streamer/operator", everything, "commands about the whole: subscribers, logs and nodes"},
		{"cmd/demo", everything, "the whole system in one process"},
		{"cmd/bench", everything, "the whole system under load, and what it is compared with"},

		{"change", nil, "the nouns of the log: everybody builds on them, so they build on nobody"},
		{"change/changetest", []string{"change"}, "makes events for tests"},
		{"fault", nil, "everybody's errors: may be imported by all, so imports none"},

		{"oplog", []string{"change", "dedup", "gap", "internal/retry"}, "reads the log once: continuity is proven here, and nobody below knows of subscribers"},
		{"oplog/oplogtest", []string{"change", "change/changetest", "oplog"}, "a log for tests"},
		{"snapshot", []string{"change"}, "pages of documents and where they belong in the log: pure"},
		{"change/extjson", []string{"change"}, "BSON as text: pure, so that whatever is served or printed may use it"},
		{"dedup", []string{"change"}, "a stage"},
		{"gap", []string{"change"}, "a stage"},
		{"match", []string{"change", "match/expr"}, "a stage"},
		{"match/expr", []string{"change"}, "one filter: checked, taken apart, evaluated on BSON; the only package that knows CEL"},
		{"checkpoint", []string{"change", "snapshot"}, "a stage; stores implement its port, not it theirs"},
		{"checkpoint/checkpointtest", []string{"change", "change/changetest", "checkpoint", "snapshot"}, "the suite that every store passes"},
		{"streamer", []string{"change", "change/extjson", "checkpoint", "gap", "health", "internal/retry", "match", "notice", "oplog", "snapshot"}, "hub, sessions and consumers: no adapter, no cluster: terms come from the wiring"},

		{"cluster", []string{"change"}, "the nouns of a cluster, and the ports to what keeps its state"},
		{"cluster/agent", []string{"change", "cluster", "internal/retry"}, "what a node does to own partitions: hands out terms and knows nothing of what is done with them"},
		{"cluster/plan", []string{"change", "cluster", "notice"}, "what the leader decides, the members' health included: pure"},
		{"cluster/leader", []string{"cluster", "cluster/plan", "internal/retry", "notice"}, "the leader's loop: applies the decisions"},
		{"cluster/clustertest", []string{"change", "checkpoint", "checkpoint/checkpointtest", "cluster"}, "a store in memory, and the suites that every store and registry passes"},
		{"handoff", []string{"change", "checkpoint", "handoff/ledger"}, "moves a partition from owner to owner, whoever they are and whatever they are made of"},
		{"handoff/ledger", []string{"change", "checkpoint", "cluster"}, "what is written down of handoffs, and when there can be one"},

		{"gateway", []string{"change", "gateway/access", "gateway/streampb", "match", "streamer"}, "a session of the node for each connection: gRPC, and events over HTTP"},
		{"gateway/access", []string{"internal/retry"}, "says who may do what, whatever is served and over which wire"},
		{"gateway/access/accesstest", nil, "makes certificates for tests"},
		{"client", []string{"gateway/streampb"}, "what other people's programs link: the wire and nothing else of ours"},
		{"gateway/sse", nil, "reads a standard format"},
		{"examples/...", []string{"client"}, "programs as others would write them: the client and nothing else of ours"},
		{"gateway/streampb", nil, "generated"},

		{"notice", []string{"internal/retry"}, "the board and its history: components post, and nothing is posted here"},
		{"notice/webhook", []string{"internal/retry", "notice"}, "tells programs elsewhere what stands on a board"},
		{"internal/breaker", []string{"notice"}, "a change of state is a notice"},
		{"health", nil, "a registry of checks: components bring theirs in the wiring"},
		{"supervisor", []string{"health"}, "sweeps health endpoints, and knows components by them alone"},

		{"internal/mongodb", []string{"change"}, "the connection that the packages below it share"},
		{"internal/mongodb/stream", []string{"change", "gap", "internal/mongodb", "internal/retry", "oplog"}, "implements the log's source"},
		{"internal/mongodb/checkpoints", []string{"change", "checkpoint", "cluster", "internal/mongodb"}, "implements the checkpoint store and its gap log, and claims"},
		{"internal/mongodb/mongodbtest", []string{"internal/mongodb"}, "connects tests"},
		{"internal/etcd", []string{"change", "checkpoint", "cluster", "internal/retry", "notice", "notice/history"}, "the connection, and all that is kept in etcd: checkpoints, who is there and owns what, notices"},
		{"internal/etcd/etcdtest", []string{"internal/devetcd"}, "starts etcd for tests, and gets in the way of connections"},
		{"internal/admin", []string{"change", "checkpoint", "gap", "notice", "snapshot", "streamer"}, "what operators do to subscribers, apart from how they say it; nodes tell it of their sessions"},
		{"internal/admin/move", []string{"change", "cluster", "handoff/ledger", "notice"}, "what operators do to partitions while nodes run: writes wishes, and looks"},
		{"internal/door", []string{"gateway/access", "health", "internal/config"}, "what the servers have in common towards the network"},
		{"internal/preflight", nil, "judges facts that others find out"},
		{"internal/preflight/inspect", everything, "brings together who finds out and who judges"},
		{"internal/mongodb/document", []string{"change", "internal/mongodb", "snapshot"}, "reads documents for snapshots"},
		{"internal/transcript", nil, "what happens when, in tests"},
		{"test", nil, "whole processes: there are only tests in it"},
		{"internal/simulation", nil, "a whole cluster that is only tested: there is nothing else in it"},
		{"internal/retry", nil, "the one way to wait between attempts"},
		{"internal/config", nil, "reads files and variables into plain values: the wiring turns them into each package's Config"},
		{"internal/archtest", nil, "reads sources, links none"},
		{"internal/profile", []string{"change"}, "looks into the process, and at how far its partitions are"},
		{"internal/backend", []string{"change", "checkpoint", "cluster", "internal/admin", "internal/config", "internal/etcd", "internal/etcd/...", "internal/mongodb", "internal/mongodb/...", "notice"}, "connects as the configuration says, for nodes and operators"},
		{"internal/member", []string{"change", "checkpoint", "cluster", "cluster/...", "gateway", "notice", "oplog", "streamer"}, "who decides what is the node's, and the node that serves it"},
		{"internal/wiring", everything, "the wiring that the commands share"},
		{"internal/workload", []string{"change"}, "measures ours from outside: writes to MongoDB and looks at what arrives"},

		{"internal/devmongo/...", []string{"internal/devmongo/..."}, "a server of its own that must be as wrong or right as MongoDB, whatever ours believes"},
		{"internal/devetcd", nil, "starts etcd; clients dial it like any other"},
	}
}

// A library is an outside module and where production code may import it. Tests may import every library of the table.
type library struct {
	module string
	may    []string // patterns as in a rule; none: tests and test helpers only
	why    string
}

// libraries are all outside modules that are imported, longest path first where one contains another.
func libraries() []library {
	anywhere := []string{"..."}
	return []library{
		{"go.mongodb.org/mongo-driver/v2", []string{"internal/mongodb/...", "internal/devmongo/...", "internal/workload", "cmd/bench"}, "no driver type crosses a package boundary"},
		{"go.etcd.io/etcd/client/v3", []string{"internal/etcd/..."}, "no driver type crosses a package boundary"},
		{"go.etcd.io/etcd/client/pkg/v3", []string{"internal/etcd/..."}, "etcd's own TLS options"},
		{"go.etcd.io/etcd/api/v3", []string{"internal/etcd/..."}, "etcd's requests and error codes"},
		{"go.etcd.io/etcd/server/v3", []string{"internal/devetcd"}, "for development: the service links no etcd server"},
		{"go.uber.org/zap", []string{"internal/devetcd"}, "etcd wants its logger in zap, to be silenced"},
		{"google.golang.org/grpc", []string{"client", "gateway/...", "internal/etcd", "internal/devetcd"}, "the gateways' wire, and etcd's: status errors, ending streams"},
		{"google.golang.org/genproto/googleapis/rpc", []string{"gateway"}, "the standard form of an error's details"},
		{"google.golang.org/protobuf", []string{"client", "gateway/..."}, "the gateways' wire"},
		{"cel.dev/cel-go", []string{"match/expr"}, "the language of filters; what it yields are ours: predicates and verdicts"},
		{"github.com/coder/websocket", []string{"examples/..."}, "the browsers' end of an example"},
		{"github.com/prometheus/client_golang", anywhere, "metrics.go and wiring; elsewhere the Registerer alone (a rule of its own)"},
		{"github.com/spf13/cobra", []string{"cmd/..."}, "commands"},
		{"github.com/spf13/pflag", []string{"cmd/..."}, "flags of commands: which one was mistyped"},
		{"gopkg.in/yaml.v3", []string{"internal/config"}, "configuration is plain values everywhere else"},
		{"github.com/hashicorp/golang-lru/v2", nil, "what the window is compared with"},
		{"github.com/sony/gobreaker/v2", []string{"internal/breaker"}, "circuit breakers"},
		{"github.com/cespare/xxhash/v2", []string{"change"}, "a document's partition"},
		{"github.com/zeebo/xxh3", []string{"change", "cluster/plan", "dedup", "snapshot", "streamer"}, "hashes of tokens, checks of what carries them on the wire, and the ranks of members"},
		{"golang.org/x/net", []string{"internal/listen"}, "a listener that accepts so many connections"},
		{"golang.org/x/sync", anywhere, "errgroup"},
		{"github.com/golang-jwt/jwt/v5", []string{"gateway/access"}, "gateways' JWTs"},
		{"golang.org/x/time", []string{"gateway/...", "streamer", "internal/wiring"}, "rate limits"},
		{"golang.org/x/sys", []string{"cluster"}, "CLOCK_BOOTTIME"},
		{"go.uber.org/goleak", nil, "tests end with the goroutines they began with"},
		{"pgregory.net/rapid", nil, "property tests"},
		{"github.com/bufbuild/protocompile", nil, "reads proto/ in a test, without tools"},
		{"github.com/google/go-cmp", []string{"internal/transcript"}, "differences in tests"},
		{"github.com/Shopify/toxiproxy/v2", nil, "cut and slow networks in tests"},
		{"github.com/anishathalye/porcupine", nil, "histories checked against a model in tests"},
		{"github.com/rs/zerolog", nil, "toxiproxy wants its logger in zerolog, to be silenced"},
	}
}

// wiring are the packages that put the others together.
func wiring() []string { return []string{"cmd/...", "internal/wiring"} }

// neverLinked are what cmd/streamer must not contain, at whatever distance.
func neverLinked() []string {
	return []string{Module + "/internal/devmongo", Module + "/internal/devetcd", Module + "/internal/workload", "go.etcd.io/etcd/server"}
}

// Sizes in lines of what a reader opens first. Other files and packages are as long as their idea.
const (
	maxMain = 80
	maxDoc  = 120
)

// emptyNames say nothing about what is inside.
func emptyNames() []string {
	return []string{"util", "utils", "common", "core", "types", "manager", "helper", "helpers"}
}
