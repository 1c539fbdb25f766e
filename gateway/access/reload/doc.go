// Package reload keeps what files say up to date without a goroutine: whoever needs it looks at the files (stat), and reads them when they
// have changed. What cannot be used leaves what was in force before, is logged once, and stands in Err until the files are in order.
//
// One caller at a time reads; the others meanwhile get what was read before, and wait for nothing.
package reload
