// Package devmongotest runs a development MongoDB for the length of a test.
//
// Start gives a test a server of its own, with all its hooks. URI gives it any MongoDB to test
// against: the one that STREAMER_TEST_MONGODB_URI names, or a server of its own. A test that needs
// no hook takes URI, so that it runs against a real MongoDB too.
//
// STREAMER_TEST_MONGODB_PROFILE names a preset (devmongo.Config.Preset) for all servers for which a
// test names none. URI is then one server for all tests that run at the same time, like a real one.
package devmongotest
