// Package leaktest ends the tests of a package whose code starts goroutines: it fails if some are
// left. Those that only end late, on a machine that is busy or stands still, are waited for, which
// goleak alone does for less than half a second.
package leaktest
