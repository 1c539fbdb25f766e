package supervisor

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/mongostream/streamer/fault"
)

// A court is a judge, and the budget that the store would keep.
type court struct {
	t      testing.TB
	judge  judge
	in     input
	used   map[string][]time.Time
	window time.Duration
}

func newCourt(t testing.TB) *court {
	t.Helper()
	return &court{
		t: t, used: make(map[string][]time.Time), window: 10 * time.Minute,
		in: input{
			Now: time.Unix(1000, 0), Known: true, Budget: 3, Nodes: 4, Paused: map[string]bool{},
			Settings: Settings{Interval: 30 * time.Second, Misses: 3, AutoRestart: true},
		},
	}
}

// step judges the next sweep over these checks.
func (c *court) step(checks ...check) verdict {
	c.in.Now = c.in.Now.Add(c.in.Settings.Interval)
	c.in.Checks, c.in.Used = checks, make(map[string]int)
	for slug, times := range c.used {
		for _, at := range times {
			if c.in.Now.Sub(at) < c.window {
				c.in.Used[slug]++
			}
		}
	}
	v := c.judge.Step(c.in)
	for _, slug := range v.Charges {
		c.used[slug] = append(c.used[slug], c.in.Now)
	}
	return v
}

func of(node, component string) check {
	return check{target: target{Slug: node + "/" + component, Node: node, Component: component, Process: node + "-1", URL: "http://" + node}}
}

func missed(c check, cause Cause) check {
	c.Miss, c.Silent = cause, cause == timedOut || cause == unreachable
	return c
}

func lane(c check) check {
	c.Miss, c.Lane = Stalled, true
	return c
}

func (v verdict) codes() (codes []fault.Code) {
	for _, e := range v.Events {
		codes = append(codes, e.Code)
	}
	slices.Sort(codes)
	return codes
}

func (c *court) want(v verdict, misses int, action Action, codes ...fault.Code) {
	c.t.Helper()
	slices.Sort(codes)
	if len(v.Findings) != 1 || v.Findings[0].Misses != misses || v.Findings[0].Action != action || !slices.Equal(v.codes(), codes) {
		c.t.Errorf("%+v", v)
	}
}

func TestMissesAreCountedAndPagedAtTheThreshold(t *testing.T) {
	c := newCourt(t)
	fine := of("b", "tail")
	c.want(c.step(missed(of("a", "tail"), badStatus), fine), 1, actionNone)
	c.want(c.step(missed(of("a", "tail"), badStatus), fine), 2, actionNone)
	v := c.step(missed(of("a", "tail"), badStatus), fine)
	c.want(v, 3, ActionRestarted, fault.SupervisorDown, fault.SupervisorRestarted)
	if len(v.Orders) != 1 || v.Orders[0].Level != Node || v.Orders[0].Process != "a-1" || v.Orders[0].Node != "a" {
		t.Errorf("%+v", v.Orders)
	}
	c.want(c.step(missed(of("a", "tail"), badStatus), fine), 4, actionNone) // paged and restarted once
}

func TestProgressResetsMisses(t *testing.T) {
	c := newCourt(t)
	c.step(missed(of("a", "tail"), badStatus))
	c.step(missed(of("a", "tail"), badStatus))
	v := c.step(of("a", "tail"))
	if !slices.Equal(v.codes(), []fault.Code{fault.SupervisorRecovered}) || v.Healthy != 1 || len(v.Findings) > 0 {
		t.Errorf("%+v", v)
	}
	c.want(c.step(missed(of("a", "tail"), badStatus)), 1, actionNone)
}

func TestLaneIsRestartedFirstAndItsProcessAfterwards(t *testing.T) {
	c := newCourt(t)
	c.want(c.step(lane(of("a", "hub"))), 1, actionNone)
	v := c.step(lane(of("a", "hub")))
	c.want(v, 2, ActionRestarted, fault.SupervisorRestarted)
	if v.Orders[0].Level != Lane || v.Orders[0].What != "hub" {
		t.Errorf("%+v", v.Orders)
	}
	c.want(c.step(lane(of("a", "hub"))), 3, actionNone, fault.SupervisorDown) // it did not help, and is paged
	c.want(c.step(lane(of("a", "hub"))), 4, actionNone)
	if v = c.step(lane(of("a", "hub"))); len(v.Orders) != 1 || v.Orders[0].Level != Node {
		t.Errorf("%+v", v)
	}
}

func TestBudgetThatIsUsedUpIsPagedOnceAndHolds(t *testing.T) {
	c := newCourt(t)
	var orders, pages int
	for range 19 { // nine and a half minutes
		v := c.step(missed(of("a", "tail"), badStatus))
		orders += len(v.Orders)
		for _, code := range v.codes() {
			if code == fault.SupervisorBudget {
				pages++
			}
		}
		delete(c.judge.pending, "a") // as if the process had come back and failed again
	}
	if orders != 3 || pages != 1 {
		t.Errorf("%d restarts, %d pages", orders, pages)
	}
	for range 10 { // the window ends
		orders += len(c.step(missed(of("a", "tail"), badStatus)).Orders)
	}
	if orders < 4 {
		t.Errorf("%d restarts after the window", orders)
	}
}

func TestNobodyIsRestartedWhoMayNotBe(t *testing.T) {
	for name, spoil := range map[string]struct {
		action Action
		how    func(*court)
	}{
		"turned off":             {actionOff, func(c *court) { c.in.Settings.AutoRestart = false }},
		"component paused":       {actionPaused, func(c *court) { c.in.Paused["a/tail"] = true }},
		"node paused":            {actionPaused, func(c *court) { c.in.Paused["a"] = true }},
		"store does not answer":  {actionUnknown, func(c *court) { c.in.Known = false }},
		"restarts are forbidden": {actionExhausted, func(c *court) { c.in.Budget = 0 }},
	} {
		c := newCourt(t)
		spoil.how(c)
		var last verdict
		for range 3 {
			last = c.step(missed(of("a", "tail"), badStatus))
		}
		if len(last.Orders) > 0 || last.Findings[0].Action != spoil.action || !slices.Contains(last.codes(), fault.SupervisorDown) {
			t.Errorf("%s: %+v", name, last)
		}
	}
}

// A restart that is not made because an operator has paused it is told once, until the component is
// well.
func TestPausedRestartIsTold(t *testing.T) {
	c := newCourt(t)
	c.in.Paused["a"] = true
	told := func() (n int) {
		for range 10 {
			for _, code := range c.step(missed(of("a", "tail"), badStatus)).codes() {
				if code == fault.SupervisorPaused {
					n++
				}
			}
		}
		return n
	}
	for range 2 {
		if n := told(); n != 1 {
			t.Errorf("told %d times", n)
		}
		c.step(of("a", "tail"))
	}
	delete(c.in.Paused, "a")
	if n := told(); n != 0 {
		t.Errorf("told %d times, and nothing is paused", n)
	}
}

// The leader is cut from half of the members: they are paged, and nobody is restarted, however long
// it lasts.
func TestSplitRestartsNobody(t *testing.T) {
	c := newCourt(t)
	pages := 0
	for range 50 {
		v := c.step(of("a", "tail"), of("b", "tail"), missed(of("c", "tail"), timedOut), missed(of("d", "tail"), unreachable))
		if len(v.Orders) > 0 {
			t.Fatalf("%+v", v.Orders)
		}
		for _, code := range v.codes() {
			if code == fault.SupervisorDown {
				pages++
			}
		}
	}
	if pages != 2 {
		t.Errorf("%d pages", pages)
	}
}

// A node that answers for one of its components is no victim of the network.
func TestNodeThatAnswersIsNotCutOff(t *testing.T) {
	c := newCourt(t)
	c.in.Nodes = 2
	orders := 0
	for range 3 {
		orders += len(c.step(of("a", "tail"), of("b", "tail"), missed(of("b", "lease"), timedOut)).Orders)
	}
	if orders != 1 {
		t.Errorf("%d restarts", orders)
	}
}

func TestManyAtOnceAreDamped(t *testing.T) {
	c := newCourt(t)
	c.in.Nodes = 12
	var orders, cascades int
	for range 6 {
		var checks []check
		for i := range 12 {
			checks = append(checks, missed(of(fmt.Sprintf("n%02d", i), "lease"), Stalled))
		}
		v := c.step(checks...)
		orders += len(v.Orders)
		for _, code := range v.codes() {
			if code == fault.SupervisorCascade {
				cascades++
			}
		}
	}
	if orders != 0 || cascades != 1 {
		t.Errorf("all fail: %d restarts, told %d times", orders, cascades)
	}
	c = newCourt(t)
	c.in.Nodes = 12
	for sweep := 1; sweep <= 3; sweep++ {
		var checks []check
		for i := range 5 {
			checks = append(checks, missed(of(fmt.Sprintf("n%02d", i), "lease"), Stalled))
		}
		v := c.step(checks...)
		if sweep == 3 && len(v.Orders) != 3 {
			t.Errorf("five of twelve fail: %d restarts at once", len(v.Orders))
		}
	}
}

// All components of a process that hangs are one restart of it.
func TestProcessIsRestartedOnce(t *testing.T) {
	c := newCourt(t)
	var v verdict
	for range 3 {
		v = c.step(missed(of("a", "hub"), timedOut), missed(of("a", "lease"), timedOut), missed(of("a", "tail"), timedOut), of("b", "hub"))
	}
	if len(v.Orders) != 1 || len(v.Findings) != 3 || v.Findings[2].Action != ActionRestarted {
		t.Errorf("%+v", v)
	}
	again := missed(of("a", "hub"), timedOut)
	again.Process = "a-2" // it is back, and begins at 0
	if v = c.step(again, of("b", "hub")); v.Findings[0].Misses != 1 {
		t.Errorf("%+v", v)
	}
}

// A process that was restarted is away for a while: that its component is well afterwards is told,
// unless it stays away.
func TestRecoveryIsToldAfterAnAbsence(t *testing.T) {
	for absent, want := range map[int][]fault.Code{0: {fault.SupervisorRecovered}, 20: {fault.SupervisorRecovered}, 21: nil} {
		c := newCourt(t)
		c.in.Keep = 20
		for range 3 {
			c.step(missed(of("a", "tail"), badStatus), of("b", "tail"))
		}
		for range absent {
			c.step(of("b", "tail"))
		}
		back := of("a", "tail")
		back.Process = "a-2"
		if v := c.step(back, of("b", "tail")); !slices.Equal(v.codes(), want) {
			t.Errorf("after %d sweeps: %v", absent, v.codes())
		}
	}
}

func TestTheDeadAreNotOrdered(t *testing.T) {
	c := newCourt(t)
	var v verdict
	for range 3 {
		left := missed(of("a", "tail"), gone)
		left.URL = ""
		v = c.step(left, of("b", "tail"))
	}
	if len(v.Orders) > 0 || v.Findings[0].Action != actionImpossible || len(v.Events) != 1 {
		t.Errorf("%+v", v)
	}
}

// Whatever happens: every miss is counted, nothing is restarted without one, and nobody more often
// than the budget in any window, also when orders could not be given, and when others sweep.
func TestBudgetHoldsAndEveryMissCounts(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		c := newCourt(t)
		c.in.Budget = rapid.IntRange(0, 4).Draw(r, "budget")
		c.in.Settings.Misses = rapid.IntRange(1, 5).Draw(r, "misses")
		nodes := rapid.IntRange(1, 6).Draw(r, "nodes")
		c.in.Nodes = nodes
		row, process := map[string]int{}, map[string]int{}
		for range rapid.IntRange(1, 80).Draw(r, "sweeps") {
			if rapid.IntRange(0, 20).Draw(r, "leader") == 0 {
				c.judge = judge{} // another node sweeps
				clear(row)
			}
			c.in.Known = rapid.IntRange(0, 9).Draw(r, "known") > 0
			c.in.Paused = map[string]bool{"n0": rapid.Bool().Draw(r, "paused")}
			var checks []check
			bad := map[string]bool{}
			for n := range nodes {
				node := fmt.Sprintf("n%d", n)
				if rapid.IntRange(0, 15).Draw(r, "new") == 0 {
					process[node]++
				}
				for _, component := range []string{"hub", "tail"} {
					k := of(node, component)
					k.Process = fmt.Sprint(process[node])
					switch rapid.IntRange(0, 4).Draw(r, "how") {
					case 0, 1:
						k = lane(k)
					case 2:
						k = missed(k, timedOut)
					}
					if key := k.Slug + k.Process; k.Miss != "" {
						row[key]++
						bad[k.Slug] = true
					} else {
						row[key] = 0
					}
					checks = append(checks, k)
				}
			}
			v := c.step(checks...)
			if v.Missed != len(bad) || len(v.Findings) != len(bad) || v.Healthy+v.Missed != len(checks) {
				r.Fatalf("%d misses, %d counted", len(bad), v.Missed)
			}
			for _, f := range v.Findings {
				if want := row[f.Slug+f.Process]; f.Misses != want {
					r.Fatalf("%s: %d misses in a row, %d counted", f.Slug, want, f.Misses)
				}
			}
			for _, o := range v.Orders {
				if !bad[o.Slug] || c.in.Paused[o.Node] || !c.in.Known {
					r.Fatalf("restarted: %+v", o)
				}
			}
			if rapid.IntRange(0, 9).Draw(r, "given") == 0 {
				c.judge.Revoke(v.Orders) // though they were given after all: the charges stand
			}
			for slug, times := range c.used {
				for i := range times {
					if i >= c.in.Budget && times[i].Sub(times[i-c.in.Budget]) < c.window {
						r.Fatalf("%s is restarted more often than %d times in %s", slug, c.in.Budget, c.window)
					}
				}
			}
		}
	})
}

// The clock of the node that sweeps may jump, back and forth: nothing is decided by it.
func TestClockThatJumpsDecidesNothing(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		steady, jumps := newCourt(t), newCourt(t)
		used := make(map[string]int) // the store counts by its own clock
		for range rapid.IntRange(1, 40).Draw(r, "sweeps") {
			var checks []check
			for n := range 4 {
				for _, component := range []string{"hub", "tail"} {
					k := of(fmt.Sprintf("n%d", n), component)
					switch rapid.IntRange(0, 3).Draw(r, "how") {
					case 0:
						k = lane(k)
					case 1:
						k = missed(k, timedOut)
					}
					checks = append(checks, k)
				}
			}
			var verdicts []verdict
			for _, c := range []*court{steady, jumps} {
				c.in.Now, c.in.Checks, c.in.Used = c.in.Now.Add(c.in.Settings.Interval), checks, used
				if c == jumps {
					c.in.Now = c.in.Now.Add(time.Duration(rapid.IntRange(-100_000, 100_000).Draw(r, "jump")) * time.Second)
				}
				v := c.judge.Step(c.in)
				for i := range v.Findings {
					v.Findings[i].LastSeen = 0 // tells the time, and decides nothing
				}
				for i := range v.Orders {
					v.Orders[i].At = time.Time{}
				}
				for i := range v.Events {
					v.Events[i].finding.LastSeen = 0
				}
				verdicts = append(verdicts, v)
			}
			if !reflect.DeepEqual(verdicts[0], verdicts[1]) {
				r.Fatalf("%+v, with jumps %+v", verdicts[0], verdicts[1])
			}
			for _, slug := range verdicts[0].Charges {
				used[slug]++
			}
		}
	})
}

func TestMissesUntilAPageAreAsConfigured(t *testing.T) {
	for misses := range 6 {
		c := newCourt(t)
		c.in.Settings.Misses = misses + 1
		for n := range misses + 1 {
			v := c.step(missed(of("a", "tail"), badStatus), of("b", "tail"))
			if paged := slices.Contains(v.codes(), fault.SupervisorDown); paged != (n == misses) {
				t.Errorf("miss %d of %d: paged %t", n+1, misses+1, paged)
			}
		}
	}
}
