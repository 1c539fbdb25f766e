// Package clustertest is what every registry must pass, together with the store of marks whose fence it feeds.
package clustertest
