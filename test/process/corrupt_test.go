package process

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/mongostream/streamer/fault"
)

// absurd replaces the numbers and the texts of a JSON value.
func absurd(value string, number json.Number, text string) string {
	var of any
	if json.Unmarshal([]byte(value), &of) != nil {
		return text
	}
	var replace func(any) any
	replace = func(v any) any {
		switch v := v.(type) {
		case float64:
			return number
		case string:
			return text
		case []any:
			for i := range v {
				v[i] = replace(v[i])
			}
		case map[string]any:
			for k := range v {
				v[k] = replace(v[k])
			}
		}
		return v
	}
	all, _ := json.Marshal(replace(of)) //nolint:errchkjson // what was JSON, with valid numbers
	return string(all)
}

// corruptions returns what may stand in the place of a value.
func corruptions(value string) map[string]string {
	return map[string]string{
		"empty": "", "truncated": value[:len(value)/2], "bytes": "\x00\xff\xfe\x80{\"", "null": "null", "no fields": "{}", "a list": "[]",
		"large numbers": absurd(value, "9223372036854775807", "x"), "larger numbers": absurd(value, "18446744073709551615", "2106-02-07T06:28:15Z"),
		"negative numbers": absurd(value, "-1", ""), "odd texts": absurd(value, "1", "a\nb\x00\u202e<script>"),
		"deep": strings.Repeat("[", 100_000), "huge": `{"node":"` + strings.Repeat("y", 1_000_000) + `"}`,
	}
}

// Whatever stands in one key of each kind harms nobody but whom the key belongs to: nodes live,
// answer, and serve everybody else meanwhile. Keys of owners, members, the leader and the plan are
// those of TestClusterRefusesWhatIsNotItsOwn and of internal/etcd.
func TestCorruptKeysHarmNobodyElse(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "etcd", 2, unhurried)
	f.begin()
	stop := f.write(100)
	store := f.lab.store.(*etcdStore)
	follow(t, f.ships[0].url()+"/v1/events?subscriber=a-victim&db="+f.lab.database)
	var others []*journal
	for _, s := range f.ships {
		others = append(others, follow(t, s.url()+"/v1/events?subscriber=honest-"+s.name+"&db="+f.lab.database))
	}
	victims := map[string]string{ // those that end with a slash are there already
		"checkpoint/exclusive/a-victim": "/", "checkpoint/shared/stdout/00000": "/", "history/exclusive/a-victim/": "/", "history/shared/stdout/00001/": "/",
		"supervisor/reign": "/", "supervisor/report/": "/", "notice/": "/",
		"gap/x": `{"v":1,"from":{"t":1795812664,"i":2},"to":{"t":1795812668,"i":2},"reason":"wrapped","namespaces":["a.b"]}`, "wish/drain/%ff": `{"by":"x"}`,
		"supervisor/settings": `{"by":"x","heartbeat_interval_s":5,"missed_heartbeats_to_alert":3}`, "supervisor/pause/node-1": `{"slug":"node-1","by":"x"}`,
		"supervisor/order/node-1/hub": `{"slug":"node-1/hub","sweep":1}`, "supervisor/restart/node-1%2Fhub/1": `{}`, "checkpoint/exclusive/a%0ab": `{"v":1}`,
		"checkpoint/shared/%ff/99999": `{"v":1}`, "notice/:logins/p/99999999999999999999": `{"id":1}`,
	}
	find := func(start string) (key string) {
		for k := range store.everything() {
			if strings.HasPrefix(k, store.root+start) && (key == "" || k < key) {
				key = k
			}
		}
		return key
	}
	for start, value := range victims {
		if value == "/" {
			until(t, "there is a key "+start, func() bool { return find(start) != "" })
		}
	}
	put := func(key, value string, options ...clientv3.OpOption) {
		t.Helper()
		if _, err := store.client.Put(t.Context(), key, value, options...); err != nil {
			t.Fatal(err)
		}
	}
	for name := range corruptions("{}") {
		before := make(map[string]string)
		stands := store.everything()
		for start, value := range victims {
			if value != "/" {
				put(store.root+start, corruptions(value)[name])
				continue
			}
			if key := find(start); stands[key] != "" {
				before[key] = stands[key]
				put(key, corruptions(stands[key])[name], clientv3.WithIgnoreLease())
			}
		}
		for i, o := range others {
			had := len(o.all())
			until(t, "the others' changes come: "+name, func() bool { return len(o.all()) > had+200 })
			for _, path := range []string{"/metrics", "/livez", "/readyz", "/v1/status", "/v1/subscribers", "/v1/gaps", "/v1/reports", "/v1/audit"} {
				a := ask(t, f.ships[i].url()+path)
				said := path == "/v1/gaps" && strings.Contains(a.body, "STRM-CHECKPOINT-") // it is the only loss
				if a.status != http.StatusOK && !said {
					t.Errorf("%s: %s%s: %d %.300s", name, f.ships[i].name, path, a.status, a.body)
				}
			}
		}
		for key, value := range before {
			put(key, value)
		}
	}
	for start := range victims {
		if _, err := store.client.Delete(t.Context(), store.root+start); err != nil {
			t.Fatal(err)
		}
	}
	if !f.ships[0].noted(string(fault.CheckpointCorrupt)) && !f.ships[1].noted(string(fault.CheckpointCorrupt)) {
		t.Error("nobody tells of the checkpoint that cannot be read")
	}
	stop()
	f.judge()
}
