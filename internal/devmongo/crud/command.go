package crud

import (
	"context"

	"github.com/mongostream/streamer/internal/devmongo/doc"
	"github.com/mongostream/streamer/internal/devmongo/node"
)

// Commands are the commands by name.
func Commands() map[string]node.Command {
	read := node.Command{Transactional: true}
	write := node.Command{Writes: true, Retryable: true, Transactional: true}
	all := map[string]node.Command{}
	put := func(name string, kind node.Command, run func(context.Context, *node.Request, *doc.Builder) error) {
		kind.Run = run
		all[name] = kind
	}
	put("insert", write, runInsert)
	put("update", write, runUpdate)
	put("delete", write, runDelete)
	put("findAndModify", write, runFindAndModify)
	put("findandmodify", write, runFindAndModify)
	put("find", read, runFind)
	put("aggregate", read, runAggregate)
	put("count", read, runCount)
	put("getMore", read, runGetMore)
	put("killCursors", read, runKillCursors)
	return all
}
