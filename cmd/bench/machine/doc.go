// Package machine tells what a benchmark ran on, so that its figures can be compared with others.
package machine
