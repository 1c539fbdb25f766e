package devmongo

import (
	"context"

	"github.com/mongostream/streamer/internal/devmongo/doc"
	"github.com/mongostream/streamer/internal/devmongo/wire"
)

// adminCommands are the commands by name.
func adminCommands() map[string]command {
	all := map[string]command{
		"hello":              {run: runHello},
		"isMaster":           {run: runHello},
		"ismaster":           {run: runHello},
		"ping":               {run: runPing},
		"buildInfo":          {run: runBuildInfo},
		"buildinfo":          {run: runBuildInfo},
		"getParameter":       {run: runGetParameter},
		"getCmdLineOpts":     {run: runGetCmdLineOpts},
		"connectionStatus":   {run: runConnectionStatus},
		"logout":             {run: runPing},
		"whatsmyuri":         {run: runWhatsMyURI},
		"serverStatus":       {run: runServerStatus},
		"replSetGetStatus":   {run: runReplSetGetStatus},
		"replSetGetConfig":   {run: runReplSetGetConfig},
		"configureFailPoint": {run: runConfigureFailPoint},
		"appendOplogNote":    {run: runAppendOplogNote, writes: true},
		"startSession":       {run: runStartSession},
		"refreshSessions":    {run: runPing},
		"endSessions":        {run: runEndSessions},
		"killSessions":       {run: runEndSessions},
		"commitTransaction":  {run: runCommit},
		"abortTransaction":   {run: runAbort},
		"create":             {run: runCreate, writes: true},
		"drop":               {run: runDrop, writes: true},
		"dropDatabase":       {run: runDropDatabase, writes: true},
		"renameCollection":   {run: runRename, writes: true},
		"createIndexes":      {run: runCreateIndexes, writes: true},
		"dropIndexes":        {run: runDropIndexes, writes: true},
		"collMod":            {run: runCollMod, writes: true},
		"listCollections":    {run: runListCollections},
		"listDatabases":      {run: runListDatabases},
		"listIndexes":        {run: runListIndexes},
		"collStats":          {run: runCollStats},
	}
	for _, name := range []string{
		"bulkWrite", "compact", "convertToCapped", "createUser", "currentOp", "dbStats", "distinct",
		"explain", "fsync", "getLog", "hostInfo", "killAllSessions", "killOp", "listCommands", "mapReduce",
		"planCacheClear", "reIndex", "replSetInitiate", "replSetReconfig", "replSetStepDown", "saslStart",
		"setDefaultRWConcern", "setParameter", "shardCollection", "top", "validate",
	} {
		all[name] = command{run: refuse}
	}
	return all
}

func refuse(_ context.Context, r *request, _ *doc.Builder) error {
	return wire.Errorf(wire.CommandNotSupported, "devmongo does not support the command '%s'", r.name)
}

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
