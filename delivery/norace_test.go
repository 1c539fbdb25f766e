//go:build !race

package delivery_test

import "time"

// shortly is how long a property is tried each time that all tests run; TestProve… tries it longer.
const shortly = 30 * time.Second
