package archtest

// A rule says which packages of ours some packages may import, in addition to fault and themselves.
// Patterns are paths within the module; one that ends in /... means the package and all below it.
// The first rule that fits a package is its rule.
type rule struct {
	pkgs []string
	only []string
	why  string
}

// rules are the arrows that are not plain. Packages without a rule put others together: commands,
// the wiring, the actions of operators.
func rules() []rule {
	of := func(patterns ...string) []string { return patterns }
	return []rule{
		{of("change/..."), of("change/..."), "the nouns of the log: everybody builds on them, so they build on nobody"},
		{of("fault", "health", "gateway/sse", "gateway/streampb", "internal/retry", "internal/wake", "dev/etcd"), nil, "everybody may build on them"},
		{of("internal/config"), of("internal/mongodb/uri", "internal/s3/uri"), "everybody may build on it; one package reads connection strings, one the URLs of buckets"},
		{of("internal/mongodb/uri"), nil, "reads a text, with the driver's own parser"},
		{of("internal/s3/uri"), nil, "reads a text"},
		{of("internal/s3"), of("internal/s3/uri", "retention"), "a store of segments"},
		{of("dedup", "gap"), of("change"), "stages never import stages"},
		{of("snapshot"), of("change", "health", "internal/wake"), "likewise: sessions and the log come through its port"},
		{of("match/..."), of("change", "match/..."), "stages never import stages"},
		{of("supervisor/..."), of("supervisor", "cluster", "health", "internal/retry", "notice"), "who looks after components knows none of them"},
		{of("oplog/..."), of("change/...", "dedup", "gap", "oplog", "internal/retry", "internal/wake"), "continuity is proven in the reader; nothing below the hub knows subscribers"},
		{of("retention/..."), of("change", "gap", "internal/retry", "oplog", "retention"), "a cursor of the log writes it, and a source of the log reads it: nothing above the log knows of it"},
		{of("checkpoint/..."), of("change/...", "checkpoint", "health", "internal/wake", "snapshot"), "stores implement its port, not it theirs"},
		{of("delivery/fair"), of("match"), "a policy of accounts and costs: no session, no log, no event"},
		{of("delivery/..."), of("change/...", "delivery/...", "gap", "health", "internal/retry", "internal/wake", "match", "oplog", "snapshot"), "no checkpoint, no notice board, no cluster: it delivers, and others keep what was acknowledged"},
		{of("streamer"), of("change", "checkpoint", "delivery", "gap", "health", "internal/retry", "internal/wake", "notice", "oplog", "snapshot"), "no transport, no store, no cluster, no filter: terms come from outside"},
		{of("internal/input"), of("change", "match"), "what clients may send, for whoever is sent something"},
		{of("gateway/..."), of("change/...", "delivery", "gateway/...", "internal/input", "internal/retry", "match", "streamer"), "a transport is a session of the hub, and nothing else"},
		{of("sink/..."), of("change/...", "delivery", "health", "internal/breaker", "internal/retry", "internal/wake", "notice", "sink", "streamer"), "a sink is a shared subscriber; its targets know messages, and not each other"},
		{of("dev/broker", "dev/versity"), nil, "targets as others run them"},
		{of("client"), of("gateway/streampb"), "other people's programs link it: the wire and nothing else of ours"},
		{of("examples/..."), of("client"), "programs as others would write them"},
		{of("cluster/plan"), of("change", "cluster", "notice"), "pure"},
		{of("handoff"), of("change", "cluster", "notice"), "how partitions move; what serves and what owns them comes through ports"},
		{of("cluster/clustertest"), of("change", "checkpoint/...", "cluster", "handoff"), "stores of checkpoints and of clusters pass its suites"},
		{of("cluster/..."), of("change", "cluster/...", "health", "internal/retry", "notice"), "ownership knows nothing of what is done with it"},
		{of("notice"), of("health", "internal/input", "internal/retry"), "components post; the board knows none"},
		{of("internal/breaker"), of("notice"), "a change of state is a notice"},
		{of("internal/mongodb/..."), of("change", "checkpoint", "cluster", "gap", "internal/mongodb/...", "internal/retry", "oplog", "snapshot"), "implements ports; knows nobody who uses them, and no other store"},
		{of("internal/etcd/..."), of("change", "checkpoint", "cluster", "dev/etcd", "handoff", "internal/etcd/...", "internal/retry", "notice", "supervisor/..."), "likewise"},
		{of("internal/profile", "dev/workload"), of("change"), "they look at the service from outside"},
		{of("dev/mongo/..."), of("dev/mongo/..."), "a server of its own, as wrong or right as MongoDB whatever ours believes"},
		{of("internal/statuspage"), nil, "files for browsers, which ask the node's endpoints"},
		{of("internal/archtest"), nil, "tests use them"},
	}
}

// A library is an outside module and where production code may import it. Tests may import every
// library of the table.
type library struct {
	module string
	may    []string // patterns as in a rule; none: tests and test helpers only
	why    string
}

// libraries are all outside modules that are imported, longest path first where one contains
// another.
func libraries() []library {
	anywhere := []string{"..."}
	return []library{
		{"go.mongodb.org/mongo-driver/v2", []string{"internal/mongodb/...", "dev/mongo/...", "dev/workload", "dev/bench", "dev/judge"}, "no driver type crosses a package boundary"},
		{"github.com/xdg-go/scram", []string{"dev/mongo/..."}, "the server's side of what the driver authenticates with"},
		{"go.etcd.io/etcd/client/v3", []string{"internal/etcd/..."}, "no driver type crosses a package boundary"},
		{"go.etcd.io/etcd/client/pkg/v3", []string{"internal/etcd/..."}, "etcd's own TLS options"},
		{"go.etcd.io/etcd/api/v3", []string{"internal/etcd/..."}, "etcd's requests and error codes"},
		{"go.etcd.io/etcd/server/v3", []string{"dev/etcd"}, "for development: the service links no etcd server"},
		{"go.uber.org/zap", []string{"dev/etcd"}, "etcd wants its logger in zap, to be silenced"},
		{"google.golang.org/grpc", []string{"client", "gateway/...", "internal/etcd", "dev/etcd", "dev/bench", "dev/judge"}, "the gateways' wire, and etcd's: status errors, ending streams; the benchmark's attackers, and a client that behaves badly"},
		{"google.golang.org/genproto/googleapis/rpc", []string{"gateway"}, "the standard form of an error's details"},
		{"google.golang.org/protobuf", []string{"client", "gateway/...", "internal/input", "dev/bench", "dev/judge"}, "the gateways' wire"},
		{"cel.dev/cel-go", []string{"match/expr"}, "the language of filters; what it yields are ours: predicates and verdicts"},
		{"github.com/twmb/franz-go/pkg/kfake", []string{"dev/broker", "dev/demo", "dev/bench"}, "for development: the service links no broker"},
		{"github.com/twmb/franz-go/pkg/kmsg", []string{"sink/kafka"}, "Kafka's requests: the position in a transaction"},
		{"github.com/twmb/franz-go", []string{"sink/kafka", "dev/demo", "dev/bench"}, "Kafka's wire; the demo and the benchmark read what has arrived"},
		{"github.com/nats-io/nats-server/v2", []string{"dev/broker"}, "for development: the service links no broker"},
		{"github.com/nats-io/nats.go", []string{"sink/nats", "dev/broker", "dev/demo", "dev/bench"}, "the wire of NATS; the demo and the benchmark read what has arrived"},
		{"github.com/nats-io/jwt/v2", nil, "accounts and users of a NATS server in tests"},
		{"github.com/nats-io/nkeys", nil, "their keys"},
		{"github.com/coder/websocket", []string{"examples/..."}, "the browsers' end of an example"},
		{"github.com/coreos/go-systemd/v22", []string{"internal/wiring"}, "tells systemd that the service is ready, and alive"},
		{"github.com/prometheus/client_golang", anywhere, "metrics.go and wiring; elsewhere the Registerer alone (a rule of its own)"},
		{"github.com/prometheus/client_model", []string{"internal/wiring"}, "/metrics without the names of clients"},
		{"github.com/spf13/cobra", []string{"cmd/...", "dev/demo"}, "commands"},
		{"github.com/spf13/pflag", []string{"cmd/...", "dev/demo"}, "flags of commands: which one was mistyped"},
		{"gopkg.in/yaml.v3", []string{"internal/config"}, "configuration is plain values everywhere else"},
		{"github.com/hashicorp/golang-lru/v2", []string{"dedup", "match"}, "programs of filters that several subscriptions share; changes that came under a token of another form"},
		{"github.com/klauspost/compress", []string{"retention"}, "zstd for the blocks of segments"},
		{"github.com/minio/minio-go/v7", []string{"internal/s3"}, "no driver type crosses a package boundary"},
		{"github.com/sony/gobreaker/v2", []string{"internal/breaker"}, "circuit breakers"},
		{"github.com/cespare/xxhash/v2", []string{"change"}, "a document's partition"},
		{"github.com/zeebo/xxh3", []string{"change", "cluster/plan", "dedup", "delivery", "snapshot"}, "hashes of tokens, checks of what carries them on the wire, and the ranks of members"},
		{"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp", []string{"internal/wiring"}, "where traces go is the wiring's alone"},
		{"go.opentelemetry.io/otel/sdk", []string{"internal/wiring"}, "what becomes of spans is the wiring's alone"},
		{"go.opentelemetry.io/otel/trace", []string{"cluster", "cluster/member", "delivery", "handoff", "internal/wiring", "sink"}, "the tracer that traces handoffs, snapshots and sinks"},
		{"go.opentelemetry.io/proto/otlp", nil, "a receiver of traces in tests"},
		{"go.opentelemetry.io/otel", []string{"cluster", "cluster/member", "delivery", "handoff", "internal/wiring", "sink"}, "attributes of spans, and their names in other nodes' records"},
		{"golang.org/x/net", nil, "frames of HTTP/2 for attacks in tests"},
		{"golang.org/x/sync", anywhere, "errgroup"},
		{"github.com/golang-jwt/jwt/v5", []string{"gateway/access"}, "gateways' JWTs"},
		{"golang.org/x/time", []string{"delivery", "gateway/...", "snapshot", "streamer", "internal/listen", "internal/wiring"}, "rate limits"},
		{"golang.org/x/sys", []string{"cluster", "cmd/streamer/operator", "internal/listen", "dev/bench", "dev/demo"}, "CLOCK_BOOTTIME, TCP_USER_TIMEOUT, SCHED_IDLE, the size of a terminal"},
		{"go.uber.org/goleak", nil, "tests end with the goroutines they began with"},
		{"pgregory.net/rapid", nil, "property tests"},
		{"github.com/bufbuild/protocompile", nil, "reads proto/ in a test, without tools"},
		{"github.com/google/go-cmp", nil, "differences in tests"},
		{"github.com/Shopify/toxiproxy/v2", nil, "cut and slow networks in tests"},
		{"github.com/anishathalye/porcupine", nil, "histories checked against a model in tests"},
		{"github.com/dop251/goja", nil, "the documents' examples in TypeScript, in tests without Node.js"},
		{"github.com/evanw/esbuild", nil, "which it compiles into plain JavaScript"},
		{"github.com/rs/zerolog", nil, "toxiproxy wants its logger in zerolog, to be silenced"},
	}
}

// wiring are the packages that put the others together.
func wiring() []string { return []string{"cmd/...", "dev/bench", "dev/demo", "internal/wiring"} }

// neverLinked are the packages that cmd/streamer must not contain, at whatever distance.
func neverLinked() []string {
	return []string{Module + "/dev/mongo", Module + "/dev/etcd", Module + "/dev/broker", Module + "/dev/workload", "github.com/nats-io/nats-server", "github.com/twmb/franz-go/pkg/kfake", "go.etcd.io/etcd/server"}
}

// Sizes in lines of the files that a reader opens first. Others are as long as their idea.
const (
	maxMain = 80
	maxDoc  = 120
)

// emptyNames say nothing about the content of a package.
func emptyNames() []string {
	return []string{"util", "utils", "common", "core", "types", "manager", "helper", "helpers"}
}
