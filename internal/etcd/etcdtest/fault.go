package etcdtest

// A Fault is a failure of one member of a cluster.
type Fault struct {
	Name string
	// Answers says that the member may answer now and then.
	Answers bool
	// Leads says that the member leads.
	Leads bool

	inject func(*Member) (heal func())
}

// Faults returns the failures that a cluster of three survives, of a follower and of the leader.
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
		f.Name = f.Name[:len(f.Name)-len("follower")] + "leader"
		f.Leads = true
		faults = append(faults, f)
	}
	return faults
}

// Victim returns the member of a cluster that the fault hits.
func (f Fault) Victim(c *Cluster) *Member {
	c.t.Helper()
	if f.Leads {
		return c.Leader()
	}
	return c.Follower()
}

// Inject injects the fault into a member, and returns a function that ends it.
func (f Fault) Inject(victim *Member) (heal func()) { return f.inject(victim) }
