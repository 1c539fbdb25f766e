// Package moves measures what gateways notice of partitions that change hands while documents are written: contenders that open a cluster of
// their own, write themselves, and compare what comes with what was written.
//
//	moved        two nodes share the partitions; one is told to give up what it has, and hands it over
//	restarted    one node has all partitions; it is stopped and started again, and nobody serves meanwhile
//
// Each node is a process, so that a restart is one. In both, one gateway follows the owners of partitions and one has its session with any node. From the moment before the move until all is
// over, each document's longest delay is kept, from its writing to the handler of the first gateway: what is measured is how long a document
// stood still. Only documents of partitions that changed hands count.
package moves
