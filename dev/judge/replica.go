package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
)

// A rule is the subscription of a copy.
type rule struct {
	coll    string // empty: all
	filter  string
	matches func(object) bool // the filter once more
	ops     []string          // none: all
	leaves  bool
}

func (r rule) String() string {
	return fmt.Sprintf("collection %q filter %q operations %v leaves %t", r.coll, r.filter, r.ops, r.leaves)
}

func (r rule) has(ns string) bool { return r.coll == "" || ns == database+"."+r.coll }

// filters returns rules. The answers of the first two never change for a document.
func filters() []rule {
	return []rule{
		{matches: func(object) bool { return true }},
		{filter: "doc.group == 1", matches: func(d object) bool { return number(d["group"]) == 1 }},
		{filter: "doc.v % 2 == 0", matches: func(d object) bool { return number(d["v"])%2 == 0 }},
		{filter: `doc.total >= 50.0 && doc.tag in ["a", "b"]`, matches: func(d object) bool {
			total, _ := plain(d["total"]).(float64)
			return total >= 50 && (d["tag"] == "a" || d["tag"] == "b")
		}},
		{filter: `doc.tags.exists(t, t == "x")`, matches: func(d object) bool {
			tags, _ := d["tags"].([]any)
			return slices.Contains(tags, any("x"))
		}},
		{filter: "has(doc.sub) && doc.sub.k == 1", matches: func(d object) bool {
			sub, ok := d["sub"].(object)
			return ok && number(sub["k"]) == 1
		}},
	}
}

// An event is a change, a document of a snapshot, or a mark, as JSON has it.
type event struct {
	ID     string    `json:"id"`
	Op     string    `json:"operationType"`
	NS     namespace `json:"ns"`
	To     namespace `json:"to"`
	Key    object    `json:"documentKey"`
	Full   object    `json:"fullDocument"`
	Update struct {
		Updated object `json:"updatedFields"`
	} `json:"updateDescription"`
	State      string   `json:"state"`
	Reason     string   `json:"reason"`
	Namespaces []string `json:"namespaces"`
}

type namespace struct{ DB, Coll string }

func (n namespace) String() string { return n.DB + "." + n.Coll }

// A held is a copy's knowledge of a document.
type held struct {
	n     int64
	doc   object // nil: only the number is known
	stale bool   // from before a loss
	at    int    // how many changes the copy had been sent
}

// A latest is the newest that a copy was sent of a document.
type latest struct {
	n       int64
	deleted bool
}

// A replica is a copy of the documents that match a rule.
type replica struct {
	rule

	kind, name string
	cluster    *cluster
	live       bool // a live query's: documents are known by home and _id

	mu      sync.Mutex
	docs    map[string]*held
	since   int64             // documents that were inserted up to this write must be present, whatever the operations
	missing map[string]bool   // namespaces with possibly missing documents; "" is all
	latest  map[string]latest // nil for a document whose older changes may come again
	markers map[string]int    // the last round's marker, by namespace
	changes int               // that were sent
	dones   int               // snapshots that are done
	back    map[string]string // documents that went back, and the events until then
	rewound bool              // once
	ended   map[string]bool   // documents that were deleted after a rewind, perhaps from before its beginning
	past    map[string][]string
}

func newReplica(c *cluster, kind, name string, r rule) *replica {
	return &replica{
		rule: r, kind: kind, name: name, cluster: c, since: c.writes.Load(), docs: make(map[string]*held), missing: map[string]bool{"": true},
		latest: make(map[string]latest), markers: make(map[string]int), back: make(map[string]string), ended: make(map[string]bool),
		past: make(map[string][]string),
	}
}

// saw notes an event for a document, or with an empty key one for the copy. The caller holds the
// mutex.
func (c *replica) saw(key, format string, args ...any) {
	most := 8
	if key == "" {
		most = 30
	}
	list := append(c.past[key], c.cluster.since()+" "+fmt.Sprintf(format, args...))
	c.past[key] = list[max(0, len(list)-most):]
}

func (c *replica) say(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.saw("", format, args...)
}

func (c *replica) history(key string) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if text, ok := c.back[key]; ok {
		return []string{text}
	}
	return slices.Clone(c.past[key])
}

func (c *replica) isWhole() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.missing) == 0
}

// replays says that older changes may come again.
func (c *replica) replays() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.latest)
}

// moved says that an operator has moved the subscriber back, perhaps to before its beginning: a
// deletion may come that precedes what the copy began with, and operations that are not subscribed
// to may hide what followed.
func (c *replica) moved() {
	c.replays()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rewound = true
}

// apply applies an event.
func (c *replica) apply(data []byte) error {
	var e event
	if err := parse(data, &e); err != nil {
		return fmt.Errorf("%w in %.200s", err, data)
	}
	c.change(&e)
	return nil
}

func (c *replica) change(e *event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch e.Op {
	case "drop", "rename", "dropDatabase", "invalidate":
		c.saw("", "%s of %s to %q", e.Op, e.NS, e.To.Coll)
		for _, ns := range []string{e.NS.String(), e.To.String()} {
			gone := func(key string) bool { return strings.HasPrefix(key, ns+" ") }
			maps.DeleteFunc(c.docs, func(key string, _ *held) bool { return gone(key) })
			maps.DeleteFunc(c.latest, func(key string, _ latest) bool { return gone(key) })
			delete(c.markers, ns)
		}
		return
	}
	c.changes++
	id := text(e.Key["_id"])
	key := e.NS.String() + " " + id
	if pad, ok := e.Full["pad"]; ok {
		e.Full["pad"] = plain(pad)
	}
	n := number(e.Full["n"])
	own := n // the number of the change itself; the looked-up document may be later
	if e.Op == "update" {
		own = number(e.Update.Updated["n"])
	}
	c.saw(key, "%s n=%d, document n=%d v=%v", e.Op, own, n, e.Full["v"])
	if e.Op == "update" && e.Full == nil && c.cluster.full != "default" {
		own = 0 // it says that there is none
	}
	c.order(key, e.Op, own, max(own, n))
	switch gone := e.Op == "delete" || e.Op == "left"; {
	case gone:
		delete(c.docs, key)
		c.ended[key] = c.rewound
		return
	case e.Full != nil:
		delete(c.ended, key)
		c.docs[key] = &held{n: n, doc: e.Full, at: c.changes}
	case c.docs[key] != nil || len(c.ops) > 0:
		c.docs[key] = &held{n: own, at: c.changes}
	}
	c.passes(e.NS.String(), id)
}

// order notes a document whose older state has come after a newer one. A change without a state,
// because its document was gone at the look-up, does not count.
func (c *replica) order(key, op string, own, state int64) {
	before := c.latest[key]
	switch {
	case op == "delete":
		c.latest[key] = latest{before.n, true}
	case op == "left" || own == 0:
	case state < before.n || state == before.n && before.deleted:
		if _, known := c.back[key]; !known {
			c.back[key] = strings.Join(c.past[key], "\n      ") + "   <- goes back"
		}
	default:
		c.latest[key] = latest{max(before.n, own), own <= before.n && before.deleted}
	}
}

// passes notes a marker.
func (c *replica) passes(ns, id string) {
	var round int
	if _, err := fmt.Sscanf(id, `"marker-%d"`, &round); err == nil {
		c.markers[ns] = max(c.markers[ns], round)
	}
}

// lost and done apply losses, and snapshots that are done: of namespaces, or of all if there are
// none.
func (c *replica) lost(reason string, namespaces []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.saw("", "loss: %s %v", reason, namespaces)
	if len(namespaces) == 0 {
		namespaces = []string{""}
	}
	for _, ns := range namespaces {
		if ns == database+".*" {
			ns = ""
		}
		if ns != "" && !c.has(ns) {
			continue
		}
		c.missing[ns] = true
		for key, d := range c.docs {
			d.stale = d.stale || ns == "" || strings.HasPrefix(key, ns+" ")
		}
	}
}

func (c *replica) marked(state, reason string, namespaces []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.saw("", "snapshot %s: %s %v, %d documents", state, reason, namespaces, len(c.docs))
	if state != "done" {
		return
	}
	c.dones++
	if len(namespaces) == 0 {
		clear(c.missing)
	}
	for _, ns := range namespaces {
		delete(c.missing, ns)
	}
	for key, d := range c.docs {
		ns, _, _ := strings.Cut(key, " ")
		if d.stale && (len(namespaces) == 0 || slices.Contains(namespaces, ns)) {
			c.saw(key, "did not come again")
			delete(c.docs, key)
		}
	}
}

// A request is the state of a copy at the request of a snapshot.
type request struct{ changes, dones int }

func (c *replica) asked() request {
	c.mu.Lock()
	defer c.mu.Unlock()
	return request{c.changes, c.dones}
}

// accepted says that a requested snapshot will come: until it is done the copy is not complete, and
// documents that it does not contain are gone.
func (c *replica) accepted(r request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.saw("", "an operator's snapshot is accepted"); c.dones > r.dones {
		return // perhaps it is done already
	}
	c.missing[""] = true
	for _, d := range c.docs {
		d.stale = d.stale || d.at <= r.changes
	}
}

// A difference is a document that is not as it must be.
type difference struct{ class, key, text string }

// A verdict is how a copy is.
type verdict struct {
	whole, passed bool // it says that it is complete; it has the round's markers
	differences   []difference
}

func (v verdict) good() bool { return v.whole && v.passed && len(v.differences) == 0 }

// class returns the classes of the differences.
func (v verdict) class() (names []string) {
	switch {
	case !v.whole:
		return []string{"not done"}
	case !v.passed:
		return []string{"late"}
	case len(v.differences) > 0:
		for _, d := range v.differences {
			names = append(names, d.class)
		}
		slices.Sort(names)
		return slices.Compact(names)
	}
	return []string{"starved"}
}

// judge compares a copy with what exists.
func (c *replica) judge(facts []*fact, round int, collections []string) verdict {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := verdict{whole: len(c.missing) == 0, passed: true}
	for _, coll := range collections {
		ns := database + "." + coll
		v.passed = v.passed && (!c.has(ns) || c.markers[ns] >= round)
	}
	exists := make(map[string]bool)
	for _, f := range facts {
		key := f.key
		if c.live {
			key = f.homeKey
		}
		exists[key] = true
		if c.has(f.ns) {
			if class, text := c.compare(f, key); class != "" {
				v.differences = append(v.differences, difference{class, key, text})
			}
		}
	}
	for key, d := range c.docs {
		if !exists[key] && (len(c.ops) == 0 || slices.Contains(c.ops, "delete")) {
			v.differences = append(v.differences, difference{"resurrected", key, fmt.Sprintf("it does not exist; the copy has n=%d", d.n)})
		}
	}
	for key := range c.back {
		v.differences = append(v.differences, difference{"order", key, "an older state came after a newer one"})
	}
	slices.SortFunc(v.differences, func(a, b difference) int { return strings.Compare(a.class+a.key, b.class+b.key) })
	return v
}

// differs reports whether the copy has another document than MongoDB, if it has the whole of it.
func (d *held) differs(f *fact) bool { return d.doc != nil && text(d.doc) != text(f.doc) }

// compare returns the class of a document's difference.
func (c *replica) compare(f *fact, key string) (class, why string) {
	d := c.docs[key]
	matches := c.matches(f.doc)
	least := f.n
	if len(c.ops) > 0 { // of other operations nothing comes; what existed at the beginning comes whole
		least = 0
		for op, n := range map[string]int64{"insert": f.born, "update": f.updated, "replace": f.replaced} {
			if slices.Contains(c.ops, op) {
				least = max(least, n)
			}
		}
		matches = matches && (least > 0 || f.born <= c.since && !c.ended[key])
		least = max(least, f.born)
	}
	hearsAll := len(c.ops) == 0
	hearsLeaves := hearsAll && c.leaves
	switch {
	case matches && d == nil:
		return "missing", fmt.Sprintf("it must be there with n=%d at least; MongoDB has %.300s", least, text(f.doc))
	case matches && d.n < least:
		return "stale", fmt.Sprintf("it must be there with n=%d at least, and has n=%d", least, d.n)
	case matches && hearsAll && d.differs(f):
		return "differs", fmt.Sprintf("the copy has %.400s\n      MongoDB has %.400s", text(d.doc), text(f.doc))
	case !matches && d != nil && hearsLeaves:
		return "superfluous", fmt.Sprintf("it does not match since n=%d or before; the copy has n=%d", f.n, d.n)
	}
	return "", ""
}
