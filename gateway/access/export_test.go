package access

// Kept returns how many accounts are held.
func (a *Accounts) Kept() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.mu.open) + len(a.mu.resting)
}
