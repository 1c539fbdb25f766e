// Package fair shares a node among identities. It knows accounts, and no sessions: the delivery
// reports costs to it, and follows its decisions. It reads no event and evaluates no filter.
//
// Each mechanism is there because of an attack; docs/security.md has the table.
//
//	Live      costs of the live path: which account leaves it, and for how long
//	Expense   costs of a session off the live path: when it needs a slot, and when it ends
//	Accounts  slots, turns and starts: work off the live path has a part of the cores
//	Memory    memory of all sessions: everybody has a share
//
// Costs are units of package match, and decay with time. Live and Expense have an owner; all others
// may be used concurrently.
package fair
