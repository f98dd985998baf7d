// Request, Response and their configuration: plain values that a host and the engine exchange.

#include "tensorrt_llm/common/assert.h"
#include "tensorrt_llm/executor/executor.h"

#include <utility>

namespace tensorrt_llm::executor
{

SamplingConfig::SamplingConfig(SizeType32 beamWidth)
    : mBeamWidth(0)
{
    setBeamWidth(beamWidth);
}

SizeType32 SamplingConfig::getBeamWidth() const
{
    return mBeamWidth;
}

std::optional<FloatType> SamplingConfig::getTemperature() const
{
    return mTemperature;
}

std::optional<RandomSeedType> SamplingConfig::getSeed() const
{
    return mSeed;
}

void SamplingConfig::setBeamWidth(SizeType32 beamWidth)
{
    TLLM_CHECK(beamWidth > 0);
    mBeamWidth = beamWidth;
}

void SamplingConfig::setTemperature(std::optional<FloatType> const& temperature)
{
    TLLM_CHECK(!temperature || *temperature >= 0.0F);
    mTemperature = temperature;
}

void SamplingConfig::setSeed(std::optional<RandomSeedType> const& seed)
{
    mSeed = seed;
}

OutputConfig::OutputConfig(bool returnLogProbs, bool returnContextLogits, bool returnGenerationLogits,
    bool excludeInputFromOutput, bool returnEncoderOutput)
    : returnLogProbs(returnLogProbs)
    , returnContextLogits(returnContextLogits)
    , returnGenerationLogits(returnGenerationLogits)
    , excludeInputFromOutput(excludeInputFromOutput)
    , returnEncoderOutput(returnEncoderOutput)
{
}

Request::Request(VecTokens inputTokenIds, SizeType32 maxTokens, bool streaming, SamplingConfig const& samplingConfig,
    OutputConfig const& outputConfig, std::optional<TokenIdType> const& endId)
    : mInputTokenIds(std::move(inputTokenIds))
    , mMaxTokens(maxTokens)
    , mStreaming(streaming)
    , mSamplingConfig(samplingConfig)
    , mOutputConfig(outputConfig)
    , mEndId(endId)
    , mPriority(0.5F)
{
    TLLM_CHECK(!mInputTokenIds.empty());
    TLLM_CHECK(mMaxTokens > 0);
}

VecTokens Request::getInputTokenIds() const
{
    return mInputTokenIds;
}

SizeType32 Request::getMaxTokens() const
{
    return mMaxTokens;
}

bool Request::getStreaming() const
{
    return mStreaming;
}

SamplingConfig Request::getSamplingConfig() const
{
    return mSamplingConfig;
}

OutputConfig Request::getOutputConfig() const
{
    return mOutputConfig;
}

std::optional<TokenIdType> Request::getEndId() const
{
    return mEndId;
}

std::optional<IdType> Request::getClientId() const
{
    return mClientId;
}

PriorityType Request::getPriority() const
{
    return mPriority;
}

void Request::setStreaming(bool streaming)
{
    mStreaming = streaming;
}

void Request::setSamplingConfig(SamplingConfig const& config)
{
    mSamplingConfig = config;
}

void Request::setOutputConfig(OutputConfig const& outputConfig)
{
    mOutputConfig = outputConfig;
}

void Request::setEndId(TokenIdType endId)
{
    mEndId = endId;
}

void Request::setClientId(IdType clientId)
{
    mClientId = clientId;
}

void Request::setPriority(PriorityType priority)
{
    mPriority = priority;
}

Response::Response(IdType requestId, std::string errorMsg, std::optional<IdType> clientId)
    : mRequestId(requestId)
    , mClientId(clientId)
    , mErrorMsg(std::move(errorMsg))
{
}

Response::Response(IdType requestId, Result result, std::optional<IdType> clientId)
    : mRequestId(requestId)
    , mClientId(clientId)
    , mResult(std::move(result))
{
}

IdType Response::getRequestId() const
{
    return mRequestId;
}

std::optional<IdType> Response::getClientId() const
{
    return mClientId;
}

bool Response::hasError() const
{
    return !mResult.has_value();
}

std::string const& Response::getErrorMsg() const
{
    TLLM_CHECK_WITH_INFO(hasError(), "the response has no error");
    return mErrorMsg;
}

Result const& Response::getResult() const
{
    TLLM_CHECK_WITH_INFO(!hasError(), "the response has an error: " + mErrorMsg);
    return *mResult;
}

} // namespace tensorrt_llm::executor
