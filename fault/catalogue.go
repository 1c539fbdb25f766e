package fault

import (
	"cmp"
	"slices"
)

//go:generate go test -run TestCodesAreDocumented -args -rewrite

//nolint:gochecknoglobals // the catalogue is a constant table
var catalogue = slices.SortedFunc(
	slices.Values(slices.Concat(clusterEntries(), configEntries(), gatewayEntries(), handoffEntries(), healthEntries(), mongodbEntries(), sinkEntries(), supervisorEntries())),
	func(a, b Entry) int { return cmp.Compare(a.Code, b.Code) })
