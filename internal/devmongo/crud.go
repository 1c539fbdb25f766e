package devmongo

import (
	"context"

	"github.com/mongostream/streamer/internal/devmongo/doc"
)

// crudCommands are the commands by name.
func crudCommands() map[string]command {
	read := command{transactional: true}
	write := command{writes: true, retryable: true, transactional: true}
	all := map[string]command{}
	put := func(name string, kind command, run func(context.Context, *request, *doc.Builder) error) {
		kind.run = run
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
