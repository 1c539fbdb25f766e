//go:build race

package delivery_test

import "time"

// shortly is how long a property is tried with the race detector, which finds with few attempts
// what it can find.
const shortly = 5 * time.Second
