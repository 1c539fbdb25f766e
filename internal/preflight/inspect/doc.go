// Package inspect finds out about the place that a configuration leads to, and has preflight judge it: the checks of "streamer check".
package inspect
