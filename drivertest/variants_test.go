package drivertest

import "github.com/holdfast-go/holdfast/driver"

// A variant is a broken store and the cases that fail because of it, all of
// these and no others. Only those that may fail depend on who comes first.
type variant struct {
	bug    bug
	claims driver.Guarantees // everything, unless given
	fails  string
	may    string
}

var variants = []variant{
	{bug: separateWorlds, fails: `
		tokens/several
		faults/silence-is-not-held
		tokens/floor-too-far
		acquire/two-processes acquire/refusal-record acquire/refusal-secret acquire/refusal-harmless
		acquire/refusal-does-not-prolong renew/other-process expiry/not-early expiry/store-clock
		tokens/rise-over-release tokens/floor-lasts keep/taken keep/shorter-than-TTL keep/longer-than-TTL
		detached/handed-over detached/outlives-store detached/outlives-process detached/outlives-renewer
		detached/expires lookup/held-name metadata/round-trip metadata/largest metadata/of-this-hold metadata/lasts
		list/held-names break/held-name watch/other-process watch/every-watcher watch/no-lost-wake-up names/odd
		concurrency/exclusion concurrency/one-winner concurrency/one-heir faults/restart faults/crash
		faults/acquire-reply-lost faults/keep-reply-lost faults/watch-severed break/token
	`},
	{bug: underclaimsPush, claims: without(push), fails: `watch/unclaimed`},
	{bug: pushWithoutWatch, fails: `
		guarantees/push watch/release watch/break watch/other-process watch/before-the-name watch/every-watcher
		watch/no-lost-wake-up watch/racing-release watch/stays watch/unread watch/others-end watch/not-closed
		watch/only-its-name watch/many closing/watches faults/watch-severed faults/silence-watched
	`},
	{bug: restartKeepsHolds, claims: restartFrees, fails: `faults/restart`},
	{bug: restartForgets, fails: `faults/restart`},
	{bug: restartBreaksWorld, fails: `tokens/rise-over-restart faults/restart faults/restart-usable`},
	{bug: tokensFallAtRestart, fails: `tokens/several-ahead tokens/floor-too-far tokens/floor-of-a-refusal tokens/rise-over-restart`},
	{bug: crashFreesAtOnce, fails: `faults/crash`},
	{bug: crashFreesEverything, fails: `detached/outlives-process detached/outlives-renewer faults/crash faults/crash-of-others`},
	{bug: crashFreesNothing, claims: crashFrees, fails: `faults/crash`},
	{bug: severedWatchEnds, fails: `faults/watch-severed`},
	{bug: supervisedWithoutPush, claims: overseers, fails: `guarantees/supervised`},
	{bug: silenceUnnoticed, fails: `faults/silence-watched`},
	{bug: remindsOnce, fails: `faults/silence-watched`},
	{bug: severedWatchIsSilent, fails: `faults/watch-severed`},
	{bug: severedStoreIsDead, fails: `faults/severed`},
	{bug: wakesEverybody, fails: `watch/only-its-name`},
	{bug: wakesOwnStoreOnly, fails: `watch/other-process watch/every-watcher watch/no-lost-wake-up watch/racing-release faults/watch-severed`},
	{bug: dropsWakeUps, fails: `watch/no-lost-wake-up watch/racing-release watch/stays watch/many`},
	{bug: wakesOnce, fails: `watch/other-process watch/stays`},
	{bug: wakesOneWatch, fails: `watch/every-watcher watch/racing-release`, may: `watch/no-lost-wake-up watch/others-end`},
	{bug: closeDoesNothing, fails: `closing/later-calls`},
	{bug: ignoresContexts, fails: `contexts/ended-before`},
	{bug: closedCallsHang, fails: `closing/later-calls closing/under-way`},
	{bug: callsOutlastDeadlines, fails: `faults/silence`},
	{bug: listOutlastsDeadlines, fails: `faults/silence`},
	{bug: saysNotApplied, fails: `faults/acquire-reply-lost faults/renew-reply-lost faults/release-reply-lost faults/keep-reply-lost`},
	{bug: clientClock, fails: `expiry/store-clock`},
	{bug: neverExpires, fails: `
		tokens/several
		acquire/refusal-does-not-prolong acquire/repetition-after-expiry renew/ends renew/after-expiry
		renew/late-with-successor renew/not-the-owner renew/batch-in-order renew/batch-each-its-ttl release/after-expiry
		release/late-with-successor expiry/not-early expiry/not-late expiry/each-its-own expiry/no-memory-of-the-last
		expiry/store-clock tokens/rise-over-expiry tokens/floor-lasts keep/shorter-than-TTL keep/longer-than-TTL
		keep/no-renewal keep/repeated-too-late keep/after-expiry keep/record-ends keep/tokens-rise detached/expires
		lookup/after-expiry lookup/harmless list/gone-names break/free-name concurrency/one-heir
		concurrency/guarded-resource faults/crash break/token-of-free-name
	`},
	{bug: foldsCase, fails: `list/held-names names/odd names/odd-release names/odd-records names/case`},
	{bug: truncatesNames, fails: `names/odd names/odd-release names/odd-records names/long`},
	{bug: hashesNames, fails: `list/held-names list/literal-prefix list/many names/many`},
	{bug: trimsNames, fails: `names/odd names/odd-release names/odd-records names/beginnings`},
	{bug: comparesPrefix, fails: `acquire/owner-compared-whole renew/not-the-owner release/not-the-owner keep/not-the-owner`},
	{bug: comparesFolded, fails: `acquire/owner-compared-whole renew/not-the-owner release/not-the-owner keep/not-the-owner`},
	{bug: expiresEarly, fails: `expiry/not-early keep/shorter-than-TTL keep/longer-than-TTL detached/expires faults/crash`},
	{bug: expiresLate, fails: `
		tokens/several
		acquire/refusal-remaining acquire/refusal-record acquire/refusal-does-not-prolong
		acquire/repetition-after-expiry renew/ends renew/after-expiry renew/late-with-successor renew/not-the-owner
		renew/batch-in-order renew/batch-each-its-ttl release/after-expiry release/late-with-successor expiry/not-early
		expiry/not-late expiry/longest expiry/each-its-own expiry/no-memory-of-the-last expiry/store-clock
		tokens/rise-over-expiry tokens/floor-lasts keep/shorter-than-TTL keep/longer-than-TTL keep/no-renewal
		keep/repeated-too-late keep/after-expiry keep/refusal keep/record keep/record-ends keep/tokens-rise
		detached/expires lookup/held-name lookup/times lookup/after-expiry lookup/after-renewal lookup/harmless
		list/held-names list/gone-names break/held-name break/free-name concurrency/one-heir
		concurrency/guarded-resource faults/crash break/token break/token-of-free-name
	`},
	{bug: roundsToSeconds, fails: `
		tokens/several
		acquire/refusal-remaining acquire/repetition-after-expiry renew/ends renew/after-expiry
		renew/late-with-successor renew/batch-in-order release/after-expiry release/late-with-successor expiry/not-early
		expiry/not-late expiry/each-its-own expiry/no-memory-of-the-last expiry/store-clock tokens/rise-over-expiry
		tokens/floor-lasts keep/shorter-than-TTL keep/longer-than-TTL keep/no-renewal keep/repeated-too-late
		keep/after-expiry keep/record-ends keep/tokens-rise detached/expires lookup/after-expiry list/gone-names
		break/free-name concurrency/one-heir concurrency/guarded-resource break/token-of-free-name
	`},
	{bug: underclaimsRemaining, fails: `
		acquire/refusal-remaining acquire/refusal-record expiry/longest keep/refusal keep/record lookup/held-name
		lookup/after-renewal list/held-names break/held-name break/token
	`},
	{bug: endedCallsApply, fails: `contexts/ended-acquire contexts/ended-release contexts/cancel-storm`},
	{bug: lostMeansAnswered, fails: `faults/acquire-request-lost faults/release-request-lost`},
	{bug: changesMetadata, fails: `acquire/refusal-record acquire/request-unchanged metadata/of-this-hold`},
	{bug: grantsNothing, fails: `
		tokens/several tokens/several-over-break tokens/several-of-a-repetition tokens/several-ahead
		renew/batch-extremes release/after-extension faults/busy faults/silence-is-not-held
		tokens/floor-too-far
		guarantees/stable acquire/free-name acquire/held-name acquire/two-processes acquire/refusal-remaining
		acquire/refusal-record acquire/refusal-secret acquire/refusal-harmless acquire/refusal-does-not-prolong
		acquire/names-apart acquire/repetition acquire/repetition-prolongs acquire/repetition-never-shortens
		acquire/repetition-after-release acquire/repetition-after-expiry acquire/owner-compared-whole acquire/no-owner
		acquire/request-unchanged renew/prolongs renew/never-shortens renew/ends renew/keeps-token renew/other-process
		renew/free-name renew/after-release renew/after-expiry renew/late-with-successor renew/not-the-owner
		renew/batch-in-order renew/batch-each-its-ttl renew/batch-duplicates renew/batch-large release/frees
		release/second release/free-name release/not-the-owner release/no-owner release/after-expiry
		release/late-with-successor release/second-with-successor release/one-name-only release/in-order release/many
		expiry/not-early expiry/not-late expiry/longest expiry/each-its-own expiry/no-memory-of-the-last
		expiry/store-clock tokens/range tokens/rise-over-release tokens/rise-over-expiry tokens/rise-over-break
		tokens/rise-over-reopening tokens/floor tokens/floor-lasts tokens/floor-below tokens/floor-of-a-refusal
		tokens/floor-of-a-repetition tokens/rise-over-restart keep/taken keep/shorter-than-TTL keep/longer-than-TTL
		keep/no-renewal keep/repeated keep/repeated-too-late keep/not-the-owner keep/not-a-stranger keep/after-expiry
		keep/refusal keep/record keep/record-ends keep/tokens-rise detached/handed-over detached/outlives-store
		detached/outlives-process detached/outlives-renewer detached/expires lookup/free-name lookup/held-name
		lookup/times lookup/after-expiry lookup/after-renewal lookup/secret lookup/harmless metadata/round-trip
		metadata/largest metadata/of-this-hold metadata/lasts list/held-names list/everything list/gone-names
		list/kept-names list/literal-prefix list/many list/broken-off list/calls-meanwhile list/secret break/held-name
		break/free-name break/kept-name break/victim break/victim-with-successor break/one-name-only break/secret
		watch/release watch/break watch/other-process watch/before-the-name watch/every-watcher watch/no-lost-wake-up
		watch/racing-release watch/stays watch/unread watch/others-end watch/only-its-name watch/many names/odd
		names/odd-release names/odd-records names/case names/long names/beginnings names/many contexts/ended-before
		contexts/ended-acquire contexts/ended-release contexts/cancel-storm contexts/secret concurrency/exclusion
		concurrency/one-winner concurrency/one-heir concurrency/repetitions concurrency/renew-and-release
		concurrency/guarded-resource closing/twice closing/other-stores closing/anew faults/restart
		faults/restart-usable faults/crash faults/crash-of-others faults/acquire-request-lost faults/acquire-reply-lost
		faults/renew-reply-lost faults/release-reply-lost faults/release-request-lost faults/keep-reply-lost
		faults/secret faults/watch-severed faults/silence faults/severed
		strangers/acquire strangers/list break/token break/other-token break/token-of-free-name
	`},
	{bug: checksThenSets, fails: `
		concurrency/exclusion concurrency/one-winner concurrency/one-heir
		concurrency/repetitions
	`, may: `contexts/cancel-storm`},
	{bug: keepLetsOwnerTake, fails: `keep/taken`},
	{bug: forgetsRepetitions, fails: `
		tokens/several-of-a-repetition
		acquire/repetition acquire/repetition-prolongs acquire/repetition-never-shortens tokens/floor-of-a-repetition
		detached/outlives-process concurrency/repetitions faults/acquire-reply-lost
	`},
	{bug: nobodyIsEverybody, fails: `acquire/no-owner release/no-owner`},
	{bug: dropsMetadata, fails: `metadata/round-trip metadata/largest metadata/of-this-hold metadata/lasts`},
	{bug: keepsMetadataUnclaimed, claims: without(metadata), fails: `metadata/unclaimed`},
	{bug: inheritsMetadata, fails: `metadata/of-this-hold`},
	{bug: inheritsExpiry, fails: `
		tokens/several
		expiry/not-early expiry/not-late expiry/no-memory-of-the-last expiry/store-clock tokens/floor-lasts
		concurrency/guarded-resource
	`},
	{bug: repetitionDoesNotProlong, fails: `acquire/repetition-prolongs`},
	{bug: repetitionShortens, fails: `acquire/repetition-never-shortens`},
	{bug: repetitionChangesToken, fails: `tokens/several-of-a-repetition acquire/repetition tokens/floor-of-a-repetition concurrency/repetitions`},
	{bug: repetitionTakesFloor, fails: `tokens/floor-of-a-repetition`},
	{bug: tokensUnclaimed, claims: without(fencing), fails: `tokens/none`},
	{bug: overclaimsFencing, fails: `
		tokens/several tokens/several-over-break tokens/several-of-a-repetition tokens/several-ahead
		tokens/floor-too-far
		acquire/repetition-after-release acquire/repetition-after-expiry tokens/range tokens/rise-over-release
		tokens/rise-over-expiry tokens/rise-over-break tokens/rise-over-reopening tokens/floor tokens/floor-lasts
		tokens/floor-below tokens/rise-over-restart keep/tokens-rise concurrency/exclusion
		concurrency/guarded-resource break/other-token
	`},
	{bug: ignoresFloor, fails: `tokens/several-ahead tokens/floor`},
	{bug: forgetsFloor, fails: `tokens/several-ahead tokens/floor-lasts tokens/floor-below`},
	{bug: takesAnyFloor, fails: `tokens/floor-too-far`},
	{bug: refusedFloorTakes, fails: `tokens/floor-too-far`},
	{bug: refusedFloorRaisesToken, fails: `tokens/floor-too-far`},
	{bug: refusesEveryFloor, fails: `tokens/several-ahead tokens/floor tokens/floor-lasts tokens/floor-below`},
	{bug: refusesFloorOfRepetition, fails: `tokens/floor-of-a-repetition`},
	{bug: tokensFallAtExpiry, fails: `
		tokens/several
		acquire/repetition-after-expiry tokens/rise-over-expiry tokens/floor-lasts keep/tokens-rise
		concurrency/guarded-resource
	`},
	{bug: tokensFallAtRelease, fails: `
		tokens/several tokens/several-over-break tokens/several-of-a-repetition
		tokens/floor-too-far
		acquire/repetition-after-release tokens/rise-over-release tokens/rise-over-break tokens/rise-over-reopening
		tokens/floor-lasts tokens/floor-below tokens/rise-over-restart concurrency/exclusion
		concurrency/guarded-resource
	`},
	{bug: tokensTooLarge, fails: `tokens/several-ahead tokens/floor tokens/floor-lasts tokens/floor-below tokens/floor-too-far tokens/range tokens/floor-of-a-refusal strangers/list`},
	{bug: tokensPerStore, fails: `
		tokens/several tokens/several-over-break tokens/several-of-a-repetition tokens/several-ahead
		tokens/floor-too-far
		tokens/rise-over-release tokens/rise-over-expiry tokens/rise-over-reopening tokens/floor-lasts
		tokens/floor-below tokens/rise-over-restart concurrency/exclusion concurrency/guarded-resource
		break/other-token
	`},
	{bug: tokensTooMany, fails: `tokens/several-of-a-repetition tokens/several-ahead tokens/several`},
	{bug: tokensNotReserved, fails: `tokens/several tokens/several-over-break tokens/several-of-a-repetition`},
	{bug: tokensOfRepetition, fails: `tokens/several-of-a-repetition`},
	{bug: tokensRunAhead, fails: `tokens/several-ahead`},
	{bug: refusalProlongs, fails: `
		acquire/refusal-remaining acquire/refusal-record acquire/refusal-does-not-prolong expiry/not-early
		expiry/longest keep/shorter-than-TTL keep/longer-than-TTL keep/refusal detached/expires lookup/harmless
		faults/crash
	`},
	{bug: refusalRaisesToken, fails: `tokens/floor-of-a-refusal`},
	{bug: refusalTakesOver, fails: `
		faults/busy
		acquire/two-processes acquire/refusal-harmless acquire/names-apart acquire/repetition-after-release
		acquire/repetition-after-expiry renew/late-with-successor release/not-the-owner release/no-owner
		release/late-with-successor release/second-with-successor release/one-name-only expiry/not-early expiry/longest
		expiry/each-its-own expiry/store-clock tokens/floor-of-a-refusal keep/repeated-too-late keep/not-the-owner
		detached/handed-over detached/outlives-store detached/outlives-process detached/outlives-renewer
		detached/expires break/victim-with-successor break/one-name-only watch/no-lost-wake-up watch/racing-release
		names/odd-release concurrency/exclusion closing/other-stores faults/restart faults/crash faults/crash-of-others
		faults/acquire-reply-lost faults/renew-reply-lost faults/release-reply-lost faults/severed break/other-token
	`, may: `contexts/cancel-storm`},
	{bug: busyIsAnError, fails: `
		renew/batch-extremes faults/busy faults/silence-is-not-held
		acquire/held-name acquire/two-processes acquire/refusal-remaining acquire/refusal-record acquire/refusal-secret
		acquire/refusal-harmless acquire/refusal-does-not-prolong acquire/names-apart acquire/repetition
		acquire/repetition-prolongs acquire/repetition-never-shortens acquire/repetition-after-release
		acquire/repetition-after-expiry acquire/owner-compared-whole acquire/no-owner renew/prolongs
		renew/never-shortens renew/late-with-successor renew/batch-each-its-ttl renew/batch-duplicates
		release/not-the-owner release/no-owner release/late-with-successor release/second-with-successor
		release/one-name-only expiry/not-early expiry/longest expiry/each-its-own expiry/no-memory-of-the-last
		expiry/store-clock tokens/floor-of-a-refusal keep/taken keep/shorter-than-TTL keep/longer-than-TTL keep/repeated
		keep/repeated-too-late keep/not-the-owner keep/not-a-stranger keep/refusal detached/handed-over
		detached/outlives-store detached/outlives-process detached/outlives-renewer detached/expires lookup/harmless
		metadata/lasts list/calls-meanwhile break/victim-with-successor break/one-name-only watch/no-lost-wake-up
		watch/racing-release names/odd names/odd-release concurrency/exclusion concurrency/one-winner
		concurrency/one-heir closing/other-stores faults/restart faults/crash faults/crash-of-others
		faults/acquire-reply-lost faults/renew-reply-lost faults/release-reply-lost faults/keep-reply-lost
		faults/severed
		strangers/acquire break/other-token
	`},
	{bug: refusalLeaksOwner, fails: `acquire/refusal-record acquire/refusal-secret keep/refusal`},
	{bug: refusalSaysNothing, fails: `acquire/refusal-remaining`},
	{bug: refusalNamesOthers, fails: `acquire/refusal-record keep/refusal`},
	{bug: errorsLeakOwner, fails: `contexts/secret faults/secret`},
	{bug: batchUsesFirstTTL, fails: `renew/batch-extremes renew/batch-each-its-ttl renew/batch-duplicates`},
	{bug: batchIsCut, fails: `renew/batch-large`},
	{bug: batchOutOfOrder, fails: `renew/batch-in-order`},
	{bug: emptyBatchFails, fails: `renew/batch-empty`},
	{bug: renewRevivesExpired, fails: `renew/after-expiry renew/batch-in-order`},
	{bug: renewTakesFree, fails: `
		renew/free-name renew/after-release renew/batch-in-order break/victim break/one-name-only
		concurrency/renew-and-release break/token
	`},
	{bug: keepLetsOwnerRenew, fails: `keep/no-renewal`},
	{bug: renewForgetsOwner, fails: `
		renew/late-with-successor renew/not-the-owner renew/batch-in-order detached/expires break/victim-with-successor
	`},
	{bug: renewOnOwnStoreOnly, fails: `
		renew/other-process detached/handed-over detached/outlives-store detached/outlives-process
		detached/outlives-renewer faults/restart
	`},
	{bug: renewDoesNothing, fails: `
		renew/batch-extremes release/after-extension
		renew/prolongs renew/batch-each-its-ttl renew/batch-duplicates detached/handed-over lookup/after-renewal
		faults/renew-reply-lost
	`},
	{bug: renewShortens, fails: `renew/batch-extremes renew/never-shortens renew/batch-duplicates`},
	{bug: renewChangesToken, fails: `renew/keeps-token`},
	{bug: renewDropsMetadata, fails: `metadata/lasts`},
	{bug: underclaimsKeep, claims: without(keep), fails: `keep/unclaimed`},
	{bug: overclaimsKeep, fails: `
		keep/taken keep/shorter-than-TTL keep/longer-than-TTL keep/no-renewal keep/repeated keep/repeated-too-late
		keep/not-the-owner keep/not-a-stranger keep/after-expiry keep/refusal keep/record keep/record-ends
		keep/tokens-rise list/kept-names break/kept-name faults/keep-reply-lost
	`},
	{bug: refusedKeepReleases, claims: without(keep), fails: `keep/unclaimed`},
	{bug: releaseAlwaysTrue, fails: `
		tokens/floor-too-far
		release/second release/free-name release/not-the-owner release/no-owner release/after-expiry
		release/late-with-successor release/second-with-successor keep/repeated-too-late keep/not-the-owner
		keep/not-a-stranger keep/after-expiry break/victim break/victim-with-successor faults/release-reply-lost
	`, may: `contexts/cancel-storm`},
	{bug: keepFreedByAnyone, fails: `keep/repeated keep/not-a-stranger faults/keep-reply-lost`},
	{bug: releaseForgetsOwner, fails: `
		release/not-the-owner release/no-owner release/late-with-successor release/second-with-successor
		keep/repeated-too-late keep/not-the-owner break/victim-with-successor faults/release-reply-lost
	`, may: `contexts/cancel-storm`},
	{bug: keepNotRepeatable, fails: `keep/repeated faults/keep-reply-lost`},
	{bug: releaseByOwnerEndsAll, fails: `release/one-name-only`},
	{bug: ignoresKeep, fails: `
		keep/taken keep/shorter-than-TTL keep/longer-than-TTL keep/repeated keep/not-a-stranger keep/refusal
		keep/record list/kept-names break/kept-name faults/keep-reply-lost
	`},
	{bug: releasesLate, fails: `
		tokens/several-ahead
		tokens/several tokens/several-of-a-repetition
		release/after-extension
		tokens/floor-too-far
		acquire/two-processes acquire/refusal-harmless acquire/repetition-after-release renew/after-release
		renew/batch-in-order release/frees release/second release/second-with-successor release/in-order
		expiry/not-early expiry/not-late expiry/no-memory-of-the-last expiry/store-clock tokens/rise-over-release
		tokens/floor tokens/floor-lasts tokens/floor-below tokens/floor-of-a-refusal detached/handed-over
		detached/outlives-store detached/outlives-process lookup/free-name metadata/of-this-hold break/free-name
		watch/other-process watch/no-lost-wake-up watch/racing-release watch/stays watch/unread watch/others-end
		watch/only-its-name contexts/ended-acquire contexts/ended-release contexts/cancel-storm
		concurrency/renew-and-release concurrency/guarded-resource closing/anew faults/release-reply-lost
		faults/release-request-lost break/other-token break/token-of-free-name
	`},
	{bug: releaseDoesNothing, fails: `
		tokens/several-ahead
		tokens/several tokens/several-of-a-repetition
		release/after-extension
		tokens/floor-too-far
		acquire/two-processes acquire/refusal-harmless acquire/repetition-after-release renew/after-release
		renew/batch-in-order release/frees release/second release/second-with-successor release/in-order
		expiry/not-early expiry/not-late expiry/no-memory-of-the-last expiry/store-clock tokens/rise-over-release
		tokens/rise-over-reopening tokens/floor tokens/floor-lasts tokens/floor-below tokens/floor-of-a-refusal
		tokens/rise-over-restart detached/handed-over detached/outlives-store detached/outlives-process lookup/free-name
		metadata/of-this-hold list/gone-names break/free-name watch/other-process watch/no-lost-wake-up
		watch/racing-release watch/stays watch/unread watch/others-end watch/only-its-name contexts/ended-acquire
		contexts/ended-release contexts/cancel-storm concurrency/exclusion concurrency/renew-and-release
		concurrency/guarded-resource closing/anew faults/release-reply-lost faults/release-request-lost
		break/other-token break/token-of-free-name
	`},
	{bug: releaseDoesNotWake, fails: `
		watch/release watch/other-process watch/before-the-name watch/every-watcher watch/no-lost-wake-up
		watch/racing-release watch/stays watch/unread watch/others-end watch/many faults/watch-severed
	`},
	{bug: keepOnlyLengthens, fails: `
		keep/shorter-than-TTL keep/no-renewal keep/repeated-too-late keep/refusal keep/record keep/record-ends
		keep/tokens-rise
	`},
	{bug: keepOnlyShortens, fails: `keep/longer-than-TTL`},
	{bug: keepIsNotMarked, fails: `keep/taken keep/no-renewal keep/refusal keep/record list/kept-names break/kept-name`},
	{bug: keepNamesHolder, fails: `keep/refusal keep/record list/kept-names`},
	{bug: underclaimsDetached, claims: without(detached), fails: `detached/unclaimed`},
	{bug: refusedDetachedTakes, claims: without(detached), fails: `detached/unclaimed`},
	{bug: overclaimsDetached, fails: `
		detached/handed-over detached/outlives-store detached/outlives-process detached/outlives-renewer detached/expires
	`},
	{bug: detachedNeverExpires, fails: `detached/expires`},
	{bug: closeEndsDetached, fails: `detached/outlives-store`},
	{bug: crashEndsDetached, claims: crashFrees, fails: `detached/outlives-process`},
	{bug: renewalAttaches, claims: crashFrees, fails: `detached/outlives-renewer`},
	{bug: underclaimsLookup, claims: without(lookup), fails: `guarantees/no-lookup`},
	{bug: lookupAlwaysFinds, claims: without(lookup), fails: `guarantees/no-lookup`},
	{bug: lookupNeverFinds, claims: without(lookup), fails: `guarantees/no-lookup`},
	{bug: lookupShowsExpired, fails: `keep/record-ends lookup/after-expiry`},
	{bug: lookupShowsNobody, fails: `lookup/free-name lookup/after-expiry`},
	{bug: lookupProlongs, fails: `keep/record lookup/held-name lookup/times lookup/after-renewal lookup/harmless`},
	{bug: lookupLeaksOwner, fails: `
		keep/record lookup/held-name lookup/secret metadata/round-trip metadata/largest metadata/of-this-hold
		metadata/lasts
	`},
	{bug: overclaimsLookup, fails: `
		renew/keeps-token keep/record lookup/held-name lookup/times lookup/after-renewal lookup/secret lookup/harmless
		metadata/round-trip metadata/largest metadata/of-this-hold metadata/lasts names/odd-records
		strangers/lookup
	`},
	{bug: underclaimsList, claims: without(list), fails: `guarantees/no-list`},
	{bug: overclaimsList, fails: `
		list/held-names list/everything list/gone-names list/kept-names list/literal-prefix list/many list/broken-off
		list/calls-meanwhile list/secret names/odd-records closing/later-calls
		strangers/list
	`},
	{bug: listBlocksCalls, fails: `list/calls-meanwhile`},
	{bug: brokenListHangs, fails: `list/broken-off`},
	{bug: listYieldsTwice, fails: `
		list/held-names list/everything list/gone-names list/kept-names list/literal-prefix list/many list/secret
		names/odd-records
	`},
	{bug: listShowsExpired, fails: `list/gone-names`},
	{bug: listLeaksOwner, fails: `list/held-names list/kept-names list/secret names/odd-records`},
	{bug: listHidesKept, fails: `list/kept-names`},
	{bug: listIsCut, fails: `list/many names/odd-records`},
	{bug: listIgnoresPrefix, fails: `list/held-names list/literal-prefix`},
	{bug: listIgnoresCase, fails: `list/held-names`},
	{bug: listTakesPatterns, fails: `list/literal-prefix`},
	{bug: underclaimsBreak, claims: without(breaking), fails: `guarantees/no-break`},
	{bug: overclaimsBreak, fails: `
		tokens/several-over-break
		tokens/rise-over-break break/held-name break/free-name break/kept-name break/victim
		break/victim-with-successor break/one-name-only break/token break/other-token break/token-of-free-name
		break/secret watch/break watch/other-process closing/later-calls
	`},
	{bug: breakSparesKept, fails: `break/kept-name`},
	{bug: breakAlwaysTrue, fails: `break/free-name break/token break/token-of-free-name`},
	{bug: breakLeaksOwner, fails: `break/held-name break/secret break/token`},
	{bug: breakByPrefix, fails: `break/one-name-only`},
	{bug: breakResetsToken, fails: `tokens/several-over-break tokens/rise-over-break`},
	{bug: breakDoesNothing, fails: `
		tokens/several-over-break
		tokens/rise-over-break break/held-name break/kept-name break/victim break/victim-with-successor
		break/one-name-only break/token
	`},
	{bug: breakIgnoresToken, fails: `break/other-token`},
	{bug: breakSparesToken, fails: `break/token`},
	{bug: breakEndsLower, fails: `break/other-token`},
	{bug: breakShowsOther, fails: `break/other-token`},
	{bug: breakOtherIsTrue, fails: `break/other-token`},
	{bug: breakDoesNotWake, fails: `watch/break watch/other-process`},
	{bug: overclaimsPush, fails: `
		watch/release watch/break watch/other-process watch/before-the-name watch/every-watcher watch/no-lost-wake-up
		watch/racing-release watch/stays watch/unread watch/others-end watch/not-closed watch/only-its-name watch/many
		closing/watches faults/watch-severed faults/silence-watched
	`},
	{bug: watchStartsLate, fails: `
		watch/release watch/break watch/other-process watch/before-the-name watch/every-watcher watch/no-lost-wake-up
		watch/racing-release watch/stays watch/unread watch/others-end watch/many faults/watch-severed
	`},
	{bug: watchNeedsName, fails: `
		watch/other-process watch/before-the-name watch/stays watch/unread watch/others-end watch/many
		faults/watch-severed faults/silence-watched
	`},
	{bug: watchLeaks, fails: `
		watch/release watch/break watch/other-process watch/before-the-name watch/every-watcher watch/no-lost-wake-up
		watch/racing-release watch/stays watch/unread watch/others-end watch/not-closed watch/only-its-name watch/many
		closing/watches faults/watch-severed faults/silence-watched
	`},
	{bug: endOfOneEndsAll, fails: `watch/others-end`},
	{bug: watchCloses, fails: `watch/not-closed`},
	{bug: busyIsNoRetry, fails: `faults/busy`},
	{bug: busyApplies, fails: `faults/busy`},
	{bug: busyForgetsWhen, fails: `faults/busy`},
	{bug: busyIsHeld, fails: `faults/busy`},
	{bug: remembersHeld, fails: `faults/silence-is-not-held`},
	{bug: releasesByFirstTTL, fails: `detached/handed-over release/after-extension`},
	{bug: identityOfEachStore, fails: `guarantees/identity`},
	{bug: occupiedIsGranted, fails: `strangers/acquire strangers/lookup`},
	{bug: occupiedIsShown, fails: `strangers/acquire strangers/lookup strangers/list`},
	{bug: occupiedHasNoBounds, fails: `strangers/acquire strangers/lookup strangers/list`},
	{bug: occupiedEndsLists, fails: `strangers/list`},
	{bug: guaranteesVague, fails: `guarantees/complete`},
	{bug: guaranteesChange, fails: `guarantees/stable`},
	{bug: closeFailsTwice, fails: `closing/twice`},
	{bug: closeBreaksWorld, fails: `tokens/rise-over-reopening detached/outlives-store closing/other-stores closing/anew`},
	{bug: closeEndsAllHolds, fails: `detached/outlives-store closing/other-stores`},
}
