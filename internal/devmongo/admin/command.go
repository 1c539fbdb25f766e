package admin

import (
	"context"

	"github.com/mongostream/streamer/internal/devmongo/doc"
	"github.com/mongostream/streamer/internal/devmongo/fault"
	"github.com/mongostream/streamer/internal/devmongo/node"
)

// Commands are the commands by name.
func Commands() map[string]node.Command {
	all := map[string]node.Command{
		"hello":              {Run: runHello},
		"isMaster":           {Run: runHello},
		"ismaster":           {Run: runHello},
		"ping":               {Run: runPing},
		"buildInfo":          {Run: runBuildInfo},
		"buildinfo":          {Run: runBuildInfo},
		"getParameter":       {Run: runGetParameter},
		"getCmdLineOpts":     {Run: runGetCmdLineOpts},
		"connectionStatus":   {Run: runConnectionStatus},
		"logout":             {Run: runPing},
		"whatsmyuri":         {Run: runWhatsMyURI},
		"serverStatus":       {Run: runServerStatus},
		"replSetGetStatus":   {Run: runReplSetGetStatus},
		"replSetGetConfig":   {Run: runReplSetGetConfig},
		"configureFailPoint": {Run: runConfigureFailPoint},
		"appendOplogNote":    {Run: runAppendOplogNote, Writes: true},
		"startSession":       {Run: runStartSession},
		"refreshSessions":    {Run: runPing},
		"endSessions":        {Run: runEndSessions},
		"killSessions":       {Run: runEndSessions},
		"commitTransaction":  {Run: runCommit},
		"abortTransaction":   {Run: runAbort},
		"create":             {Run: runCreate, Writes: true},
		"drop":               {Run: runDrop, Writes: true},
		"dropDatabase":       {Run: runDropDatabase, Writes: true},
		"renameCollection":   {Run: runRename, Writes: true},
		"createIndexes":      {Run: runCreateIndexes, Writes: true},
		"dropIndexes":        {Run: runDropIndexes, Writes: true},
		"collMod":            {Run: runCollMod, Writes: true},
		"listCollections":    {Run: runListCollections},
		"listDatabases":      {Run: runListDatabases},
		"listIndexes":        {Run: runListIndexes},
		"collStats":          {Run: runCollStats},
	}
	for _, name := range []string{
		"bulkWrite", "compact", "convertToCapped", "createUser", "currentOp", "dbStats", "distinct",
		"explain", "fsync", "getLog", "hostInfo", "killAllSessions", "killOp", "listCommands", "mapReduce",
		"planCacheClear", "reIndex", "replSetInitiate", "replSetReconfig", "replSetStepDown", "saslStart",
		"setDefaultRWConcern", "setParameter", "shardCollection", "top", "validate",
	} {
		all[name] = node.Command{Run: refuse}
	}
	return all
}

func refuse(_ context.Context, r *node.Request, _ *doc.Builder) error {
	return fault.New(fault.CommandNotSupported, "devmongo does not support the command '%s'", r.Name)
}
