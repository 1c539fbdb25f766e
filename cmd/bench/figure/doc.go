// Package figure is what the benchmark tells: figures, their targets, and the measurements that they come from.
package figure
