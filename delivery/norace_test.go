//go:build !race

package delivery_test

import "time"

// shortly is how long a property is tried by go test; TestProve… tries it longer.
const shortly = 30 * time.Second
