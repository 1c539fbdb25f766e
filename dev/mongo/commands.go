package devmongo

import (
	"context"

	"github.com/mongostream/streamer/dev/mongo/doc"
	"github.com/mongostream/streamer/dev/mongo/wire"
)

// commands are the commands by name.
func commands() map[string]command {
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
		"logout":             {run: runLogout},
		"saslStart":          {run: runSaslStart},
		"saslContinue":       {run: runSaslContinue},
		"authenticate":       {run: runAuthenticate},
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
		"create": {run: runCreate, writes: true, fields: []string{
			"capped", "size", "max", "viewOn", "pipeline", "timeseries", "collation",
			"changeStreamPreAndPostImages", "validationLevel", "validationAction", "idIndex", "autoIndexId",
		}},
		"drop":             {run: runDrop, writes: true, named: true, fields: []string{}},
		"dropDatabase":     {run: runDropDatabase, writes: true, fields: []string{}},
		"renameCollection": {run: runRename, writes: true, fields: []string{"to", "dropTarget"}},
		"createIndexes":    {run: runCreateIndexes, writes: true, named: true, fields: []string{"indexes", "commitQuorum"}},
		"dropIndexes":      {run: runDropIndexes, writes: true, named: true, fields: []string{"index"}},
		"collMod":          {run: runCollMod, writes: true, named: true, fields: []string{"changeStreamPreAndPostImages"}},
		"listCollections":  {run: runListCollections, fields: []string{"filter", "nameOnly", "cursor", "authorizedCollections"}},
		"listDatabases":    {run: runListDatabases, fields: []string{"filter", "nameOnly", "authorizedDatabases"}},
		"listIndexes":      {run: runListIndexes, named: true, fields: []string{"cursor"}},
		"collStats":        {run: runCollStats, named: true},
		"insert": {run: runInsert, writes: true, retryable: true, transactional: true, named: true, fields: []string{
			"documents", "ordered", "bypassDocumentValidation", "stmtId", "stmtIds",
		}},
		"update": {run: runUpdate, writes: true, retryable: true, transactional: true, named: true, fields: []string{
			"updates", "ordered", "bypassDocumentValidation", "stmtId", "stmtIds",
		}},
		"delete": {run: runDelete, writes: true, retryable: true, transactional: true, named: true, fields: []string{
			"deletes", "ordered", "stmtId", "stmtIds",
		}},
		"findAndModify": {run: runFindAndModify, writes: true, retryable: true, transactional: true, named: true, fields: []string{
			"query", "sort", "remove", "update", "new", "fields", "upsert", "bypassDocumentValidation", "hint", "stmtId", "arrayFilters",
		}},
		"find": {run: runFind, transactional: true, named: true, fields: []string{
			"filter", "sort", "projection", "skip", "limit", "batchSize", "singleBatch", "tailable", "awaitData", "noCursorTimeout",
			"oplogReplay", "allowPartialResults", "allowDiskUse", "hint", "min", "max",
		}},
		"aggregate":   {run: runAggregate, transactional: true},
		"count":       {run: runCount, transactional: true, fields: []string{"query", "skip", "limit", "hint"}},
		"getMore":     {run: runGetMore, transactional: true},
		"killCursors": {run: runKillCursors, transactional: true},
	}
	for _, name := range []string{
		"bulkWrite", "compact", "convertToCapped", "createUser", "currentOp", "dbStats", "distinct",
		"explain", "fsync", "getLog", "hostInfo", "killAllSessions", "killOp", "listCommands", "mapReduce",
		"planCacheClear", "reIndex", "replSetInitiate", "replSetReconfig", "replSetStepDown",
		"setDefaultRWConcern", "setParameter", "shardCollection", "top", "validate",
	} {
		all[name] = command{run: refuse}
	}
	all["findandmodify"] = all["findAndModify"]
	return all
}

func refuse(_ context.Context, r *request, _ *doc.Builder) error {
	return wire.Errorf(wire.CommandNotSupported, "devmongo does not support the command '%s'", r.name)
}
