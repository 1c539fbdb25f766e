package gateway

import "time"

// ChangeBytes bounds an answer of Changes.
const ChangeBytes = changeBytes

// ReadFor bounds how long a request reads.
func (c *Changes) ReadFor(d time.Duration) { c.longest = d }
