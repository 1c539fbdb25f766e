package etcdtest

// A Fault is what can happen to one member of a cluster.
type Fault struct {
	Name string
	// Answers says that the member may answer now and then.
	Answers bool
	// Leads says that the member leads.
	Leads bool

	inject func(*Member) (heal func())
}

// Faults are those that a cluster of three outlives, of a member that follows and of one that
// leads.
func Faults() (faults []Fault) {
	for _, f := range []Fault{
		{Name: "isolated", inject: (*Member).Isolate},
		{Name: "stopped", inject: (*Member).Stop},
		{Name: "paused", inject: (*Member).Pause},
		{Name: "slow", inject: (*Member).Slow, Answers: true},
		{Name: "replaced", inject: (*Member).Remove},
	} {
		f.Name += " follower"
		faults = append(faults, f)
	}
	for _, f := range faults {
		f.Name, f.Leads = f.Name[:len(f.Name)-len("follower")]+"leader", true
		faults = append(faults, f)
	}
	return faults
}

// Victim returns a member of a cluster for it to happen to.
func (f Fault) Victim(c *Cluster) *Member {
	c.t.Helper()
	if f.Leads {
		return c.Leader()
	}
	return c.Follower()
}

// Inject makes it happen to a member, and returns what ends it.
func (f Fault) Inject(victim *Member) (heal func()) { return f.inject(victim) }
