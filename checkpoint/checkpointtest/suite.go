package checkpointtest

import "testing"

// TestStore runs the suite. Its cases run in parallel and end after it has returned. Open returns a
// new, empty store for every case and closes it with t.Cleanup.
func TestStore(t *testing.T, open func(t *testing.T) Harness) {
	t.Helper()
	cases := []struct {
		name string
		run  func(h harness)
	}{
		{"every field of a checkpoint comes back", testFields},
		{"every form of a position comes back", testPositions},
		{"a token too large to keep is kept as its time", testLargeToken},
		{"a token that nobody can read is kept as its time", testStrangeToken},
		{"what a caller does to its checkpoints afterwards does not matter", testAliasing},
		{"where nothing was saved there is nothing", testNone},
		{"what makes no sense is refused", testRefused},
		{"every name is a name of its own", testNames},
		{"checkpoints are listed in the order of their subscribers and partitions", testList},
		{"a deleted checkpoint is gone and can be saved again", testDelete},
		{"nothing to save is no error", testSaveNothing},
		{"a save after the caller gave up is an error", testSaveCanceled},
		{"an older position is left out silently", testSaveOlder},
		{"a save repeated is no error", testSaveRepeated},
		{"a store that remembers nothing saves too", testSaveReopened},
		{"many checkpoints are saved at once", testSaveMany},
		{"the largest checkpoints are saved at once", testSaveLarge},
		{"damaged checkpoints are refused and left as they are", testDamage},
		{"an exclusive checkpoint of another count of partitions is merged where it is earliest", testOtherCount},

		{"a save with an old epoch is fenced and touches nothing", testFenced},
		{"one fenced checkpoint costs the others nothing", testFencedAmongMany},
		{"two epochs that save at once end with the higher one", testEpochsRace},
		{"a claim of terms finds the checkpoints and nothing where there is none", testClaimTerms},
		{"a claim of terms with an old epoch is fenced", testClaimTermsFenced},
		{"shared subscribers have checkpoints of their own", testSharedSubscribers},
		{"a checkpoint never moves back", testRaces},

		{"an exclusive subscriber is in all partitions", testExclusive},
		{"what is saved of some partitions leaves the others", testExclusiveMerges},
		{"what is left of snapshots goes with the later position", testSnapshots},
		{"the losses of a subscriber are in its checkpoint once that passes them", testLosses},
		{"the losses of a shared subscriber are in the checkpoints that pass them", testSharedLosses},
		{"an exclusive subscriber is saved under a claim only", testUnclaimed},
		{"a later process takes the name, an earlier one is refused", testClaimName},
		{"of two processes with one number the store's is the owner", testClaimOfAnother},
		{"processes that claim at once end with the latest", testClaimsRace},
		{"nodes that save parts at once lose nothing", testSaversRace},
		{"of too many subscribers those make room that were saved longest ago", testTooMany},
		{"an identity has so many names and no more, and costs others nothing", testTooManyNames},
		{"what another identity has made is not claimed", testClaimOfAnotherIdentity},
		{"a store does what a Memory does", testModel},

		{"a late write undoes nothing", testLateWrite},
		{"a late first write undoes nothing", testLateFirstWrite},
		{"a write of a deposed owner that arrives late is lost", testLateDeposed},
		{"a late write of an exclusive subscriber undoes nothing", testLateExclusive},
		{"a save whose answer got lost is known as one's own", testLostAnswer},
		{"a claim whose answer got lost is known as one's own", testLostClaim},
		{"a save without a connection ends in time and can be repeated", testCut},

		{"where nothing was saved there is no history", testNoHistory},
		{"the history has what is not routine, and one a minute of the rest", testHistoryThins},
		{"a clock that goes back thins the history no more than one that goes on", testHistoryClock},
		{"the history keeps the last checkpoints", testHistoryLength},
		{"the history survives the store that wrote it", testHistoryReopened},
		{"what is not saved is not in the history", testHistoryOfRefused},
		{"many checkpoints are entries of their histories at once", testHistoryOfMany},
		{"a deleted checkpoint takes its history along", testHistoryDeleted},
		{"the history of an exclusive subscriber tells where it was earliest", testHistoryOfExclusive},

		{"a rewind moves the checkpoint back and raises its generation", testRewind},
		{"a rewind moves an exclusive subscriber in every partition", testRewindExclusive},
		{"a rewind where nothing was saved is refused", testRewindNone},
		{"a rewind forward is refused and touches nothing", testRewindForward},
		{"a rewind moves one partition only", testRewindOne},
		{"rewinds follow each other", testRewindTwice},
		{"a save of a lower generation is refused", testLowerGeneration},
		{"a save of a higher generation is taken as it is", testHigherGeneration},
		{"a rewind and saves at once never mix", testRewindRace},
		{"rewinds at once are all done", testRewindsRace},
		{"a write that arrives after a rewind undoes nothing", testLateAfterRewind},
		{"an import is the next generation and fences nobody", testPut},

		{"the first origin stands", testOrigin},
		{"of many creators all get the same origin", testOriginRace},
		{"an origin is completed once, and nobody notices", testBackend},
		{"of many who complete the origin all get the same one", testBackendRace},
		{"an adopted origin fences every epoch before", testAdopt},
		{"an origin that has changed is not adopted", testAdoptMoved},
		{"of many who adopt one does", testAdoptRace},

		{"every field of a gap comes back", testGapFields},
		{"gaps are listed as they were found", testGapOrder},
		{"a gap added again keeps what was found first", testGapAgain},
		{"a token of a gap too large to keep is kept as its time", testGapLargeToken},
		{"of too many gaps the oldest are dropped", testTooManyGaps},
		{"gaps added at once are all kept", testGapRace},
		{"one gap added by many at once is one", testSameGapRace},
		{"the gap log needs no owner and outlives checkpoints", testGapUnfenced},
		{"damaged gaps are named and leave others readable", testDamagedGap},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.run(harness{open(t), t})
		})
	}
}
