package wake

// Notify sends a signal to a channel of capacity 1 unless one is pending. It never blocks.
func Notify(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
