//go:build !linux

package main

// yieldCPU does nothing: other systems have no idle-only threads.
func yieldCPU() error { return nil }
