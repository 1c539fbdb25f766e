//go:build race

package delivery_test

import "time"

// shortly is how long CI tries a property, with the race detector; TestProve… tries it longer.
const shortly = 10 * time.Second
