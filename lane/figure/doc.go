// Package figure is what a log's readers and cursors look like at one moment, and how that becomes metrics.
package figure
