// Package fair shares a node among identities. It knows accounts, and no sessions: the delivery
// tells it what was spent, and does what it says. It reads no event and evaluates no filter.
//
// Each mechanism is there because of an attack; docs/security.md has the table.
//
//	Live      what the live path costs: which account leaves it, and for how long
//	Expense   what one session costs off the live path: when it needs a slot, and when it ends
//	Accounts  slots, turns and starts: work off the live path has a part of the cores
//	Memory    what all sessions hold: everybody has a share
//	Pages     whose documents are read next
//
// Costs are units of package match, and decay with time. Live and Expense have an owner; all others
// may be used concurrently.
package fair
